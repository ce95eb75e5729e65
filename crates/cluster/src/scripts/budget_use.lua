-- Shared by the scripts about budgets. A counter is stored under KIND:WINDOW:NAME; the kind is `sliding`, `fixed` or
-- `in_flight`. The sorted set `counters` has all of them, with the time at which each is empty at the latest.

-- Parts of a sliding window. A call counts for 60 whole parts after its own, so it leaves the window up to one part late,
-- and never early.
local BUCKETS = 60
local now = time_now()

-- Each of these returns the units in use, and the time after which a retry is useful.
local function use_in_flight(key, own_boot)
  local used = 0
  local entries = redis.call('HGETALL', key)
  for entry = 1, #entries, 2 do
    local boot, ends = string.match(entries[entry + 1], '^(%x+) (%d+)$')
    -- A replica that is gone holds nothing any more. A settlement that was lost ends by time.
    local is_live = boot == own_boot or redis.call('EXISTS', prefix .. 'replica:' .. boot) == 1
    if is_live and tonumber(ends) > now then
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
    if bucket < current - BUCKETS then
      redis.call('HDEL', key, entries[entry])
    else
      used = used + tonumber(entries[entry + 1])
      oldest = math.min(oldest, bucket)
    end
  end
  return used, math.ceil(((oldest + BUCKETS + 1) * width - now) / 1000)
end

local function use_fixed(key)
  return tonumber(redis.call('HGET', key, 'count') or '0'), redis.call('PTTL', key)
end

local function use_of(counter, kind, window, own_boot)
  local key = prefix .. counter
  local used, retry
  if kind == 'in_flight' then
    used, retry = use_in_flight(key, own_boot)
  elseif kind == 'sliding' then
    used, retry = use_sliding(key, window)
  else
    used, retry = use_fixed(key)
  end
  return used, math.max(0, retry)
end
