-- Reserves one unit of each budget, or of none.
-- ARGV: prefix, place, id, lifetime of the reservation, then NAME WINDOW LIMIT of each budget; window 0 is in flight.

local BUCKETS = 60
local id = ARGV[3]
local boot = boot_of(ARGV[2])
local now = time_now()
local reservation = prefix .. 'reservation:' .. id
if redis.call('EXISTS', reservation) == 1 then
  return { 'reserved', '', '0' }
end

local buckets = {}
for at = 5, #ARGV, 3 do
  local name, window, limit = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local used, retry = 0, 0
  if window == 0 then
    local key = prefix .. 'in_flight:' .. name
    local entries = redis.call('HGETALL', key)
    for entry = 1, #entries, 2 do
      -- A replica that is gone holds nothing any more.
      if redis.call('EXISTS', prefix .. 'replica:' .. entries[entry + 1]) == 1 then
        used = used + 1
      else
        redis.call('HDEL', key, entries[entry])
      end
    end
    retry = 1000
  else
    local key = prefix .. 'window:' .. name
    local width = window * 1000 / BUCKETS
    local current = math.floor(now / width)
    local oldest = current
    local entries = redis.call('HGETALL', key)
    for entry = 1, #entries, 2 do
      local bucket = tonumber(entries[entry])
      if bucket <= current - BUCKETS then
        redis.call('HDEL', key, entries[entry])
      else
        used = used + tonumber(entries[entry + 1])
        oldest = math.min(oldest, bucket)
      end
    end
    retry = math.ceil(((oldest + BUCKETS) * width - now) / 1000)
    buckets[name] = text(current)
  end
  if used >= limit then
    return { 'refused', name, tostring(retry) }
  end
end

local kept = {}
for at = 5, #ARGV, 3 do
  local name, window = ARGV[at], tonumber(ARGV[at + 1])
  if window == 0 then
    redis.call('HSET', prefix .. 'in_flight:' .. name, id, boot)
    kept[#kept + 1] = name
    kept[#kept + 1] = ''
  else
    local key = prefix .. 'window:' .. name
    redis.call('HINCRBY', key, buckets[name], 1)
    redis.call('PEXPIRE', key, math.ceil(window * (BUCKETS + 1) / BUCKETS))
    kept[#kept + 1] = name
    kept[#kept + 1] = buckets[name]
  end
end
redis.call('RPUSH', reservation, unpack(kept))
redis.call('PEXPIRE', reservation, ARGV[4])
return { 'reserved', '', '0' }
