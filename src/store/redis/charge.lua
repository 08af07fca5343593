-- Decides on one request, in one step at one moment. KEYS: the state of each charge. ARGV: the time, or
-- nothing; `charge`, `peek` to write nothing, or `deny` to tell of a request that is denied elsewhere; then
-- for each charge its rule, its cost, whether it is soft, and three numbers of the rule, the limit first.
-- Returns the time and, for each charge, whether it fits, how long its key is blocked yet, and the state.
local now, shortest = moment(ARGV[1])
local writes, allowed = ARGV[2] == 'charge', ARGV[2] ~= 'deny'
local asked = {}

for index, key in ipairs(KEYS) do
  local at = 6 * index - 3
  local rule, cost, soft = rules[ARGV[at]], tonumber(ARGV[at + 1]), ARGV[at + 2] == '1'
  local limit, a, b = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local kept, blocked, found = rule.load(key)
  local moved = found and rule.moved_back(kept, now, limit, a, b)
  kept = moved or kept
  local fits = limit > 0
  if fits and cost > 0 then
    fits = cost <= limit and rule.admits(kept, now, cost, limit, a, b)
  end
  if blocked > now or not (fits or soft) then
    allowed = false
  end
  asked[index] = {rule, cost, kept, blocked, found, moved, fits, limit, a, b}
end

local reply = {now}
for index, key in ipairs(KEYS) do
  local rule, cost, kept, blocked, found, moved, fits, limit, a, b = unpack(asked[index])
  local charged = allowed and fits and cost > 0
  if charged then
    rule.charge(kept, now, cost, limit, a, b)
  end
  local told = ''
  if charged or found then
    told = rule.told(kept, now, cost, limit, a, b)
  end
  local place = 3 * index
  reply[place - 1] = fits and 1 or 0
  reply[place] = math.max(blocked - now, 0)
  reply[place + 1] = told
  -- A denial writes only what no request could have left: a state from the future, and one that never dies.
  if writes and cost > 0 and (charged or moved or found and redis.call('PTTL', key) == -1) then
    save(rule, key, kept, told, blocked, now, shortest, limit, a, b)
  end
end
return reply
