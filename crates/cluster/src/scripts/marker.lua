-- Reads the service marker, and makes one if there is none.
-- ARGV: prefix, key check.

local key = prefix .. 'service'
local value = redis.call('GET', key)
if value then
  return value
end
-- The time of its making is the generation: an emptied store gets another one.
value = FORMAT .. ':' .. text(time_now()) .. ':' .. ARGV[2]
redis.call('SET', key, value)
return value
