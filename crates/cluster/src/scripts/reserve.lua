-- Reserves one unit of each budget, or of none.
-- ARGV: prefix, place, id, lifetime of the reservation, then NAME KIND WINDOW LIMIT of each budget. The kind is
-- `sliding`, `fixed` or `in_flight`.

local BUCKETS = 60
local id = ARGV[3]
local boot = boot_of(ARGV[2])
local now = time_now()
local reservation = prefix .. 'reservation:' .. id
if redis.call('EXISTS', reservation) == 1 then
  return { 'reserved', '', '0' }
end

-- Each of these returns the units in use, and the time after which a retry is useful.
local function use_in_flight(key)
  local used = 0
  local entries = redis.call('HGETALL', key)
  for entry = 1, #entries, 2 do
    -- A replica that is gone holds nothing any more.
    if redis.call('EXISTS', prefix .. 'replica:' .. entries[entry + 1]) == 1 then
      used = used + 1
    else
      redis.call('HDEL', key, entries[entry])
    end
  end
  return used, 1000
end

local function use_sliding(key, window)
  local width = window * 1000 / BUCKETS
  local current = math.floor(now / width)
  local used, oldest = 0, current
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
  return used, math.ceil(((oldest + BUCKETS) * width - now) / 1000)
end

local function use_fixed(key)
  return tonumber(redis.call('HGET', key, 'count') or '0'), redis.call('PTTL', key)
end

for at = 5, #ARGV, 4 do
  local name, kind, window, limit = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local key = prefix .. kind .. ':' .. name
  local used, retry
  if kind == 'in_flight' then
    used, retry = use_in_flight(key)
  elseif kind == 'sliding' then
    used, retry = use_sliding(key, window)
  else
    used, retry = use_fixed(key)
  end
  if used >= limit then
    return { 'refused', name, tostring(math.max(0, retry)) }
  end
end

-- The reservation remembers for each unit its kind, its budget, and the bucket or window to which a refund belongs.
local kept = {}
for at = 5, #ARGV, 4 do
  local name, kind, window = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local key = prefix .. kind .. ':' .. name
  local mark = ''
  if kind == 'in_flight' then
    redis.call('HSET', key, id, boot)
  elseif kind == 'sliding' then
    mark = text(math.floor(now / (window * 1000 / BUCKETS)))
    redis.call('HINCRBY', key, mark, 1)
    redis.call('PEXPIRE', key, math.ceil(window * (BUCKETS + 1) / BUCKETS))
  else
    if redis.call('HSETNX', key, 'start', text(now)) == 1 then
      redis.call('PEXPIRE', key, window)
    end
    mark = redis.call('HGET', key, 'start')
    redis.call('HINCRBY', key, 'count', 1)
  end
  kept[#kept + 1] = kind
  kept[#kept + 1] = name
  kept[#kept + 1] = mark
end
redis.call('RPUSH', reservation, unpack(kept))
redis.call('PEXPIRE', reservation, ARGV[4])
return { 'reserved', '', '0' }
