-- Stores the memory of a session.
-- ARGV: prefix, session, memory, lifetime.

local key = prefix .. 'session:' .. ARGV[2]
local stored = redis.call('GET', key)
if stored then
  fail_if_newer(string.match(stored, '^(%d+):') or '0')
end
redis.call('SET', key, ARGV[3], 'PX', ARGV[4])
return 1
