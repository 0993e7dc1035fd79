-- Makes a loaded generation the live one, pointer and position in one step.
-- KEYS: the generation's key, the generations' hash, the position's key. ARGV: generation, its position, the position
-- that is to be replaced (empty: none that counts).
-- Returns 1, or 0 when the generation is not (or no longer) being loaded, or another has moved what it replaces.
if redis.call('HGET', KEYS[2], ARGV[1]) ~= 'loading' then
  return 0
end
local old = redis.call('GET', KEYS[1])
if ARGV[3] ~= '' and redis.call('GET', KEYS[3]) ~= ARGV[3] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[3], ARGV[2])
redis.call('HSET', KEYS[2], ARGV[1], 'live')
if old and old ~= ARGV[1] then
  redis.call('HSET', KEYS[2], old, 'retired')
end
return 1
