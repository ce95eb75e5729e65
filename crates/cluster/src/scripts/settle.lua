-- Ends reservations: in-flight units are given back, and with `refund` the units of windows too.
-- ARGV: prefix, then ID and 'keep' or 'refund' of each.

for argument = 2, #ARGV, 2 do
  local id, end_of_it = ARGV[argument], ARGV[argument + 1]
  local reservation = prefix .. 'reservation:' .. id
  local kept = redis.call('LRANGE', reservation, 0, -1)
  for at = 1, #kept, 3 do
    local kind, mark = kept[at], kept[at + 2]
    local key = prefix .. kept[at + 1]
    if kind == 'in_flight' then
      redis.call('HDEL', key, id)
    elseif end_of_it == 'refund' then
      -- The bucket may have left the window, or a new window may have begun.
      if kind == 'sliding' and redis.call('HEXISTS', key, mark) == 1 then
        redis.call('HINCRBY', key, mark, -1)
      elseif kind == 'fixed' and redis.call('HGET', key, 'start') == mark then
        redis.call('HINCRBY', key, 'count', -1)
      end
    end
  end
  -- The key stays for a while without units: a reservation that arrives late, or again, must not count any more.
  redis.call('DEL', reservation)
  redis.call('RPUSH', reservation, 'settled', '', '')
  redis.call('PEXPIRE', reservation, 60000)
end
return 1
