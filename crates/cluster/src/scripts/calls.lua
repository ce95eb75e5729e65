-- Enters calls of a replica that have started, and removes those that have ended.
-- ARGV: prefix, place, lifetime, number of started calls, then ID VALUE of each, then the ids that have ended.

local boot = boot_of(ARGV[2])
local key = prefix .. 'calls:' .. boot
local started = tonumber(ARGV[4])
for at = 5, 4 + started * 2, 2 do
  redis.call('HSET', key, ARGV[at], ARGV[at + 1])
end
for at = 5 + started * 2, #ARGV do
  redis.call('HDEL', key, ARGV[at])
end
if redis.call('EXISTS', key) == 1 then
  redis.call('PEXPIRE', key, ARGV[3])
  redis.call('SADD', prefix .. 'calls', boot)
else
  redis.call('SREM', prefix .. 'calls', boot)
end
return 1
