-- Ends a reservation: in-flight units are given back, and with `refund` the units of windows too.
-- ARGV: prefix, id, 'keep' or 'refund'.

local reservation = prefix .. 'reservation:' .. ARGV[2]
local kept = redis.call('LRANGE', reservation, 0, -1)
for at = 1, #kept, 3 do
  local kind, name, mark = kept[at], kept[at + 1], kept[at + 2]
  local key = prefix .. kind .. ':' .. name
  if kind == 'in_flight' then
    redis.call('HDEL', key, ARGV[2])
  elseif ARGV[3] == 'refund' then
    -- The bucket may have left the window, or a new window may have begun.
    if kind == 'sliding' and redis.call('HEXISTS', key, mark) == 1 then
      redis.call('HINCRBY', key, mark, -1)
    elseif kind == 'fixed' and redis.call('HGET', key, 'start') == mark then
      redis.call('HINCRBY', key, 'count', -1)
    end
  end
end
-- The key stays for a while without units: a late retry of the reservation must not count again.
if #kept > 0 then
  redis.call('DEL', reservation)
  redis.call('RPUSH', reservation, 'settled', '', '')
  redis.call('PEXPIRE', reservation, 60000)
end
return 1
