-- Releases an exclusive lease.
-- ARGV: prefix, place, name, epoch.

local place, name, epoch = ARGV[2], ARGV[3], tonumber(ARGV[4])
local key = prefix .. 'lease:' .. name
local current, holder = read_owner(key)
if current == epoch and holder == place then
  redis.call('DEL', key)
end
-- A late heartbeat must not bring it back.
local highest = tonumber(redis.call('HGET', prefix .. 'epochs', name) or '0')
redis.call('HSET', prefix .. 'epochs', name, text(math.max(highest, epoch + 1)))
return 1
