-- Writes fields of a shared table back that the store lost. A higher version in the store stays.
-- ARGV: prefix, table, then FIELD VERSION VALUE of each.

local key = prefix .. 'table:' .. ARGV[2]
local written = 0
for at = 3, #ARGV, 3 do
  local field, version = ARGV[at], tonumber(ARGV[at + 1])
  local stored = redis.call('HGET', key, field)
  local found = 0
  if stored then
    local format, number = string.match(stored, '^(%d+):(%d*)')
    -- A newer format stays, whatever its version.
    found = tonumber(format) > FORMAT and math.huge or tonumber(number)
  end
  if found < version then
    redis.call('HSET', key, field, FORMAT .. ':' .. text(version) .. ':' .. ARGV[at + 2])
    written = written + 1
  end
end
if written > 0 then
  local revision = tonumber(redis.call('HGET', prefix .. 'revisions', ARGV[2]) or '0')
  redis.call('HSET', prefix .. 'revisions', ARGV[2], text(next_epoch(revision, time_now())))
  redis.call('PUBLISH', prefix .. 'changes', ARGV[2])
end
return written
