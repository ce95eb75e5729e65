-- Compares a shared table with the copy of a replica.
-- ARGV: prefix, table, then FIELD VERSION of each field of the copy.

local known = {}
for at = 3, #ARGV, 2 do
  known[ARGV[at]] = tonumber(ARGV[at + 1])
end
local stored = redis.call('HGETALL', prefix .. 'table:' .. ARGV[2])
local newer, lost = {}, {}
for at = 1, #stored, 2 do
  local field, value = stored[at], stored[at + 1]
  local format, version = string.match(value, '^(%d+):(%d+):')
  -- A newer format stays, whatever its version.
  local found = (not format or tonumber(format) > FORMAT) and math.huge or tonumber(version)
  if found > (known[field] or 0) then
    newer[#newer + 1] = { field, value }
  elseif found < known[field] then
    lost[#lost + 1] = field
  end
  known[field] = nil
end
for field in pairs(known) do
  lost[#lost + 1] = field
end
return { newer, lost, #stored / 2, redis.call('HGET', prefix .. 'revisions', ARGV[2]) or '0' }
