-- Renews the slots that requests of a node hold. KEYS: the sets. ARGV: the time, or nothing; the rule; how long a slot
-- lasts; then for each key how many requests hold slots of it, and for each of these its number and how many slots it
-- holds. Returns how many slots were lost and are taken again.
local now, shortest = moment(ARGV[1])
local rule, life, at, lost = rules[ARGV[2]], ARGV[3] + 0, 4, 0
for index = 1, #KEYS do
  local requests = ARGV[at] + 0
  lost = lost + rule.renew(KEYS[index], at + 1, at + 2 * requests, now, life, shortest)
  at = at + 1 + 2 * requests
end
return lost
