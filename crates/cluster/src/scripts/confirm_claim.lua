-- Confirms that a replica still holds a lease, and that a field still has the version that it was read with.
-- ARGV: prefix, place, name, epoch, table, field, version.

local epoch, holder = read_owner(prefix .. 'lease:' .. ARGV[3])
if epoch ~= tonumber(ARGV[4]) or holder ~= ARGV[2] then
  return 0
end
local stored = redis.call('HGET', prefix .. 'table:' .. ARGV[5], ARGV[6])
local version = stored and string.match(stored, '^%d+:(%d+):') or '0'
return tonumber(version) == tonumber(ARGV[7]) and 1 or 0
