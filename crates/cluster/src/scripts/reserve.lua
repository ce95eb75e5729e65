-- Reserves one unit of each budget, or of none.
-- ARGV: prefix, place, id, lifetime of the reservation, then KIND WINDOW NAME LIMIT of each budget.
-- Returns the number of the budget that is spent, from 1, and the time after which a retry is useful; or 0.

local id, lifetime = ARGV[3], tonumber(ARGV[4])
local boot = boot_of(ARGV[2])
local reservation = prefix .. 'reservation:' .. id
if redis.call('EXISTS', reservation) == 1 then
  return { 0, 0 }
end

local function counter_at(at)
  return ARGV[at] .. ':' .. ARGV[at + 1] .. ':' .. ARGV[at + 2]
end

for at = 5, #ARGV, 4 do
  local used, retry = use_of(counter_at(at), ARGV[at], tonumber(ARGV[at + 1]), boot)
  if used >= tonumber(ARGV[at + 3]) then
    return { (at - 1) / 4, retry }
  end
end

-- The reservation remembers for each unit its counter, and the bucket or window to which a refund belongs.
local kept = {}
for at = 5, #ARGV, 4 do
  local kind, window, counter = ARGV[at], tonumber(ARGV[at + 1]), counter_at(at)
  local key = prefix .. counter
  local mark, empty_after = '', window
  if kind == 'in_flight' then
    redis.call('HSET', key, id, boot .. ' ' .. text(now + lifetime * 1000))
    redis.call('PEXPIRE', key, lifetime)
    empty_after = lifetime
  elseif kind == 'sliding' then
    mark = text(math.floor(now / (window * 1000 / BUCKETS)))
    redis.call('HINCRBY', key, mark, 1)
    empty_after = math.ceil(window * (BUCKETS + 1) / BUCKETS)
    redis.call('PEXPIRE', key, empty_after)
  else
    if redis.call('HSETNX', key, 'start', text(now)) == 1 then
      redis.call('PEXPIRE', key, window)
    end
    mark = redis.call('HGET', key, 'start')
    redis.call('HINCRBY', key, 'count', 1)
  end
  if redis.call('ZADD', prefix .. 'counters', text(now + empty_after * 1000), counter) == 1 then
    redis.call('ZREMRANGEBYSCORE', prefix .. 'counters', '-inf', text(now))
  end
  kept[#kept + 1] = kind
  kept[#kept + 1] = counter
  kept[#kept + 1] = mark
end
redis.call('RPUSH', reservation, unpack(kept))
redis.call('PEXPIRE', reservation, lifetime)
return { 0, 0 }
