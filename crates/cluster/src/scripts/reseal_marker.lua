-- Replaces the service marker if it is still the expected one.
-- ARGV: prefix, expected, new.

local key = prefix .. 'service'
if redis.call('GET', key) == ARGV[2] then
  redis.call('SET', key, ARGV[3])
end
return 1
