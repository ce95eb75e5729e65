-- The use of all budgets.
-- ARGV: prefix, most counters to return. Returns KIND WINDOW NAME USED RETRY of each.

redis.call('ZREMRANGEBYSCORE', prefix .. 'counters', '-inf', text(now))
local found = {}
for _, counter in ipairs(redis.call('ZREVRANGE', prefix .. 'counters', 0, tonumber(ARGV[2]) - 1)) do
  local kind, window, name = string.match(counter, '^([a-z_]+):(%d+):(.*)$')
  local used, retry = use_of(counter, kind, tonumber(window), '')
  if used > 0 then
    found[#found + 1] = kind
    found[#found + 1] = window
    found[#found + 1] = name
    found[#found + 1] = text(used)
    found[#found + 1] = text(retry)
  end
end
return found
