-- Stores the memory of a session. The end of a session is final: a late memory does not open it again.
-- ARGV: prefix, session, memory, lifetime.

local key = prefix .. 'session:' .. ARGV[2]
local stored = redis.call('GET', key)
if stored then
  local format, kind = string.match(stored, '^(%d+):(.?)')
  fail_if_newer(format or '0')
  local is_end = string.match(ARGV[3], '^%d+:(.?)') == '-'
  if kind == '-' and not is_end then
    return 0
  end
end
redis.call('SET', key, ARGV[3], 'PX', ARGV[4])
return 1
