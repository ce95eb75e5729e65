-- Claims an exclusive lease.
-- ARGV: prefix, place, name, highest known epoch, lifetime, lease, grace.

local place, name = ARGV[2], ARGV[3]
local lifetime = tonumber(ARGV[5])
local now = time_now()
local grace = grace_left(now, tonumber(ARGV[6]), tonumber(ARGV[7]))
if grace > 0 then
  return { 'grace', tostring(grace) }
end
local key = prefix .. 'lease:' .. name
local epoch, holder = read_owner(key)
if epoch and holder ~= place then
  return { 'taken', tostring(math.max(0, redis.call('PTTL', key))) }
end
if not epoch then
  local highest = tonumber(redis.call('HGET', prefix .. 'epochs', name) or '0')
  epoch = next_epoch(math.max(highest, tonumber(ARGV[4])), now)
  redis.call('HSET', prefix .. 'epochs', name, text(epoch))
end
-- A claim whose reply was lost keeps its epoch.
redis.call('SET', key, owner_value(epoch, place), 'PX', lifetime)
return { 'claimed', text(epoch) }
