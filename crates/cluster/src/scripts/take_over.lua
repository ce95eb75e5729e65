-- Makes a replica the owner of a session.
-- ARGV: prefix, place, session, owner before, its epoch, cause, retention, lease, grace.

local place, session, from, from_epoch = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local lease = tonumber(ARGV[8])
local now = time_now()
local grace = grace_left(now, lease, tonumber(ARGV[9]))
if grace > 0 then
  return { 'grace', tostring(grace), '' }
end
local key = prefix .. 'moved:' .. session
local epoch, owner = read_owner(key)
if epoch and epoch > from_epoch then
  return { 'owned', text(epoch), owner }
end
if ARGV[6] == 'record_ended' and redis.call('EXISTS', prefix .. 'replica:' .. boot_of(from)) == 1 then
  return { 'live', '0', '' }
end
epoch = next_epoch(from_epoch, now)
local value = owner_value(epoch, place)
redis.call('SET', key, value, 'PX', ARGV[7])
notify_taken(boot_of(from), session, value, lease)
-- If the store lost the takeovers in between, the owner that it knows may serve the session again.
local known = boot_of(owner or string.match(session, '^(.+)/%d+$'))
if known ~= boot_of(from) then
  notify_taken(known, session, value, lease)
end
-- The epoch of the last takeover, by which the replica notices lost writes.
local replica = prefix .. 'replica:' .. boot_of(place)
local previous = '0'
if redis.call('EXISTS', replica) == 1 then
  previous = redis.call('HGET', replica, 'takeover') or '0'
  redis.call('HSET', replica, 'takeover', text(math.max(tonumber(previous), epoch)))
end
return { 'taken', text(epoch), previous }
