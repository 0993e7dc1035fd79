-- Compare-and-set of a chunk of entries by LSN. Versions are 20 digits and compared as strings: Lua's numbers lose
-- precision above 2^53.
-- KEYS: the generations' hash, the position's key, then an entry and its tombstone for each row.
-- ARGV: generation, the position that the writer starts from (empty: the generation is being loaded), `json` or `hash`,
-- seconds an entry lives (0: for ever), seconds a tombstone lives, `compare` or `set` (whatever is there), what the keys
-- of lists begin with (empty: no lists); then for each row, with lists, its field and its list's key (empty: none), and
-- its version, the number of values (0: a delete) and the values.
-- Returns the number of rows that were older than what is there; -1 when the generation is not to be written to, -2
-- when another writer has moved the position.
local state = redis.call('HGET', KEYS[1], ARGV[1])
if state ~= 'live' and state ~= 'loading' then
  return -1
end
if ARGV[2] ~= '' and redis.call('GET', KEYS[2]) ~= ARGV[2] then
  return -2
end
local is_hash = ARGV[3] == 'hash'
local entry_ttl, gone_ttl = tonumber(ARGV[4]), tonumber(ARGV[5])
local compares = ARGV[6] == 'compare'
local lists = ARGV[7]
local arg, stale = 8, 0

local function list_of(entry)
  local stored = redis.pcall('GET', entry) -- which may be of any type
  local is_read, fields = pcall(cjson.decode, stored)
  if is_read and type(fields) == 'table' and type(fields._parent) == 'string' then
    return lists .. fields._parent
  end
  return ''
end

local function stored_version(entry, gone)
  if not compares then
    redis.call('UNLINK', entry, gone) -- of whatever type it is
    return '', true
  end
  local version
  if is_hash then
    version = redis.call('HGET', entry, '_lsn')
  else
    version = redis.call('GETRANGE', entry, 9, 28) -- behind {"_lsn":"
  end
  if version and version ~= '' then
    return version, false
  end
  return redis.call('GET', gone) or '', true
end

for key = 3, #KEYS, 2 do
  local entry, gone = KEYS[key], KEYS[key + 1]
  local field, list, former = '', '', ''
  if lists ~= '' then
    field, list, former = ARGV[arg], ARGV[arg + 1], list_of(entry)
    arg = arg + 2
  end
  local version, count = ARGV[arg], tonumber(ARGV[arg + 1])
  local stored, is_missing = stored_version(entry, gone)
  if version < stored then
    stale = stale + 1
  elseif count == 0 then
    redis.call('UNLINK', entry)
    redis.call('SET', gone, version, 'EX', gone_ttl)
    if former ~= '' then
      redis.call('HDEL', former, field)
    end
  else
    if former ~= '' and former ~= list then
      redis.call('HDEL', former, field)
    end
    if list ~= '' then
      redis.call('HSET', list, field, ARGV[arg + 2])
    end
    if is_missing and stored ~= '' then
      redis.call('DEL', gone)
    end
    if is_hash then
      redis.call('DEL', entry) -- a column that became NULL leaves no field
      redis.call('HSET', entry, unpack(ARGV, arg + 2, arg + 1 + count))
    else
      redis.call('SET', entry, ARGV[arg + 2])
    end
    if entry_ttl > 0 then
      redis.call('EXPIRE', entry, entry_ttl)
    end
  end
  arg = arg + 2 + count
end
return stale
