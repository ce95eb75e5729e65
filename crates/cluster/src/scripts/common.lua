-- Shared by all scripts. ARGV[1] is the beginning of all keys: `{namespace}:`.
-- Times are microseconds of the store's clock, durations milliseconds. A double holds both exactly until 2255.

local prefix = ARGV[1]
local FORMAT = 1

local function time_now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function text(number)
  return string.format('%.0f', number)
end

local function fail_if_newer(format)
  if tonumber(format) > FORMAT then
    error({ err = 'NEWERFORMAT ' .. format .. ' ' .. FORMAT })
  end
end

local function has_newer_format(key)
  local format = string.match(redis.call('GET', key) or '', '^(%d+):')
  return format and tonumber(format) > FORMAT
end

-- An ownership is stored as FORMAT:EPOCH:PLACE. Returns epoch and place, or nothing if there is none.
local function read_owner(key)
  local value = redis.call('GET', key)
  if not value then
    return nil
  end
  local format, epoch, place = string.match(value, '^(%d+):(%d+):(.+)$')
  if not format then
    -- A newer format may look different after its number.
    fail_if_newer(string.match(value, '^(%d+):') or '0')
    error({ err = 'ERR the value of ' .. key .. ' cannot be read' })
  end
  fail_if_newer(format)
  return tonumber(epoch), place
end

local function owner_value(epoch, place)
  return FORMAT .. ':' .. text(epoch) .. ':' .. place
end

-- The boot of a place NAME/BOOT.
local function boot_of(place)
  return string.match(place, '/(%x+)$')
end

local function next_epoch(old, now)
  return math.max(old + 1, now)
end

-- No replica had a heartbeat for one lease: the store was away, or it was emptied.
local function starts_grace(now, lease)
  local last = redis.call('GET', prefix .. 'last')
  return not last or now - tonumber(last) >= lease * 1000
end

-- Rest of the grace period.
local function grace_left(now, lease, grace)
  if starts_grace(now, lease) then
    return grace
  end
  local rest = tonumber(redis.call('GET', prefix .. 'grace') or '0') - now
  return math.max(0, math.ceil(rest / 1000))
end

-- Tells a boot that it lost a session, until it acknowledges that. The notices of a boot that is gone end by time.
local function notify_taken(boot, session, value, lease)
  local key = prefix .. 'taken:' .. boot
  redis.call('HSET', key, session, value)
  redis.call('PEXPIRE', key, lease * 10)
end
