-- Ends a reservation: in-flight units are given back, and with `refund` the units of windows too.
-- ARGV: prefix, id, 'keep' or 'refund'.

local key = prefix .. 'reservation:' .. ARGV[2]
local kept = redis.call('LRANGE', key, 0, -1)
for at = 1, #kept, 2 do
  local name, bucket = kept[at], kept[at + 1]
  if bucket == '' then
    redis.call('HDEL', prefix .. 'in_flight:' .. name, ARGV[2])
  elseif ARGV[3] == 'refund' then
    local window = prefix .. 'window:' .. name
    -- The bucket may have left the window.
    if redis.call('HEXISTS', window, bucket) == 1 then
      redis.call('HINCRBY', window, bucket, -1)
    end
  end
end
-- The list stays for a while without content that counts: a late retry of the reservation must not count again.
if #kept > 0 then
  redis.call('DEL', key)
  redis.call('RPUSH', key, '', '')
  redis.call('PEXPIRE', key, 60000)
end
return 1
