-- Renews the slots that requests of a node hold. KEYS: the sets. ARGV: the time, or nothing; the rule; how long a slot
-- lasts; then for each key how many slots of it are held, and the member of each. Returns how many slots were lost and are
-- taken again.
local now, shortest = moment(ARGV[1])
local rule, life, at, lost = rules[ARGV[2]], ARGV[3] + 0, 4, 0
for index = 1, #KEYS do
  local slots = ARGV[at] + 0
  lost = lost + rule.renew(KEYS[index], at + 1, at + slots, now, life, shortest)
  at = at + 1 + slots
end
return lost
