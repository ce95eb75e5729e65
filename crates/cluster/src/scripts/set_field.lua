-- Sets a field of a shared table if its version is the expected one.
-- ARGV: prefix, table, field, expected version, value ('+...' or '-'), lease, grace.

local field, expected = ARGV[3], tonumber(ARGV[4])
local now = time_now()
-- After an outage the replicas first write back what the store may have lost. Changes are possible one heartbeat before
-- claims: a login that was renewed just before the outage is written before another replica may renew it.
local lease = tonumber(ARGV[6])
local grace = grace_left(now, lease, tonumber(ARGV[7])) - math.floor(lease / 5)
if grace > 0 then
  return { 'grace', tostring(grace) }
end
local key = prefix .. 'table:' .. ARGV[2]
local version = 0
local stored = redis.call('HGET', key, field)
if stored then
  local format, found = string.match(stored, '^(%d+):(%d*)')
  fail_if_newer(format)
  version = tonumber(found)
end
if version ~= expected then
  return { 'changed', text(version) }
end
version = next_epoch(version, now)
redis.call('HSET', key, field, FORMAT .. ':' .. text(version) .. ':' .. ARGV[5])
local revision = tonumber(redis.call('HGET', prefix .. 'revisions', ARGV[2]) or '0')
redis.call('HSET', prefix .. 'revisions', ARGV[2], text(next_epoch(revision, now)))
redis.call('PUBLISH', prefix .. 'changes', ARGV[2])
return { 'set', text(version) }
