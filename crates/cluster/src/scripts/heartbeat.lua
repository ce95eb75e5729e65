-- Renews the record and the exclusive leases of a replica.
-- ARGV: prefix, place, record, lease, grace, number of notices, key checks with spaces between them, number of leases, then
-- NAME EPOCH of each lease, then SESSION OWNER of each notice that the replica has received.

local place, record = ARGV[2], ARGV[3]
local lease, grace = tonumber(ARGV[4]), tonumber(ARGV[5])
local boot = boot_of(place)
local now = time_now()

-- A service with another key may have taken the namespace. Nothing is written then.
local service = redis.call('GET', prefix .. 'service') or ''
local format, check = string.match(service, '^(%d+):%d+:(%x+)$')
if format and tonumber(format) <= FORMAT and not string.find(' ' .. ARGV[7] .. ' ', ' ' .. check .. ' ', 1, true) then
  error({ err = 'FOREIGNSERVICE' })
end

if starts_grace(now, lease) then
  redis.call('SET', prefix .. 'grace', text(now + grace * 1000))
end
redis.call('SET', prefix .. 'last', text(now))

local key = prefix .. 'replica:' .. boot
-- The time at which the record was made, because the reply of the heartbeat that made it may be lost.
redis.call('HSETNX', key, 'since', text(now))
redis.call('HSET', key, 'record', record)
redis.call('PEXPIRE', key, lease)
redis.call('SADD', prefix .. 'replicas', boot)
local last_takeover = redis.call('HGET', key, 'takeover') or '0'

local lost = {}
local last_lease = 8 + 2 * tonumber(ARGV[8])
for at = 9, last_lease, 2 do
  local name, epoch = ARGV[at], tonumber(ARGV[at + 1])
  local lease_key = prefix .. 'lease:' .. name
  local is_ours
  if has_newer_format(lease_key) then
    -- A replica of a newer version has it.
    is_ours = false
  elseif redis.call('EXISTS', lease_key) == 1 then
    local current, holder = read_owner(lease_key)
    is_ours = current == epoch and holder == place
  else
    -- The store lost it, or it has just ended and no replica has claimed it since.
    is_ours = tonumber(redis.call('HGET', prefix .. 'epochs', name) or '0') <= epoch
  end
  if is_ours then
    redis.call('SET', lease_key, owner_value(epoch, place), 'PX', lease)
    redis.call('HSET', prefix .. 'epochs', name, text(epoch))
  else
    lost[#lost + 1] = name
  end
end

local records = {}
for _, other in ipairs(redis.call('SMEMBERS', prefix .. 'replicas')) do
  local stored = redis.call('HGET', prefix .. 'replica:' .. other, 'record')
  if stored then
    records[#records + 1] = other .. ' ' .. stored
  else
    redis.call('SREM', prefix .. 'replicas', other)
  end
end

local notices = prefix .. 'taken:' .. boot
for at = last_lease + 1, #ARGV, 2 do
  if redis.call('HGET', notices, ARGV[at]) == ARGV[at + 1] then
    redis.call('HDEL', notices, ARGV[at])
  end
end
local taken = redis.call('HSCAN', notices, '0', 'COUNT', ARGV[6])[2]
local since = redis.call('HGET', key, 'since')
local revisions = redis.call('HGETALL', prefix .. 'revisions')
return { since, last_takeover, lost, taken, records, grace_left(now, lease, grace), text(now), revisions, service }
