-- Writes records of takeovers back, and renews their lifetime. A higher epoch in the store stays.
-- ARGV: prefix, place, epoch of the last takeover or '', retention, lease, then SESSION EPOCH ORIGIN of each record.

local place = ARGV[2]
local current = {}
for at = 6, #ARGV, 3 do
  local session, own, origin = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2]
  local key = prefix .. 'moved:' .. session
  local epoch, owner = read_owner(key)
  if not epoch then
    epoch, owner = 0, origin
  end
  if epoch < own then
    local value = owner_value(own, place)
    redis.call('SET', key, value)
    -- The notice of this takeover may be lost too.
    if owner ~= place then
      notify_taken(boot_of(owner), session, value, tonumber(ARGV[5]))
    end
    epoch, owner = own, place
  end
  redis.call('PEXPIRE', key, ARGV[4])
  current[#current + 1] = owner_value(epoch, owner)
end
local replica = prefix .. 'replica:' .. boot_of(place)
if ARGV[3] ~= '' and redis.call('EXISTS', replica) == 1 then
  local last = tonumber(redis.call('HGET', replica, 'takeover') or '0')
  redis.call('HSET', replica, 'takeover', text(math.max(last, tonumber(ARGV[3]))))
end
return current
