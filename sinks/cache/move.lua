-- Moves a live generation's position, if it is still what the writer read.
-- KEYS: the generation's key, the position's key. ARGV: generation, the position read, the new position.
-- Returns 1, or 0 when the store was emptied, switched or moved by another in the meantime.
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[2] then
  return 0
end
redis.call('SET', KEYS[2], ARGV[3])
return 1
