-- Decides on one request, in one step at one moment. KEYS: the state of each charge. ARGV: the time, or
-- nothing; `charge`, `peek` to write nothing, or `deny` to tell of a request that is denied elsewhere; then
-- for each charge its rule, its cost, whether it is soft, and four numbers of the rule, the limit first.
-- Returns the time and, for each charge, whether it fits, how long its key is blocked yet, and the state, before
-- which stand, if the key has a limit of its own, `=`, how long that lasts yet, its four numbers and `|`: as one text, which a
-- server is quicker to make than a list.
local now, shortest = moment(ARGV[1])
local purpose = ARGV[2]
local allowed = purpose ~= 'deny'
local asked, reply = {}, {string.format('%d', now)}

for index = 1, #KEYS do
  local at = 7 * index - 4
  local rule, cost, limit = rules[ARGV[at]], ARGV[at + 1] + 0, ARGV[at + 3] + 0
  local a, b, c = ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0
  local kept, marks, text = (rule.load or load)(KEYS[index])
  local blocked, changed = 0, false
  if marks then
    kept, blocked, changed, limit, a, b, c = heed(rule, kept, marks, now, true, limit, a, b, c)
  end
  local moved = text and rule.moved_back(kept, now, limit, a, b, c)
  kept, moved = moved or kept, moved or changed
  local fits = limit > 0
  if fits and cost > 0 then
    fits = cost <= limit and rule.admits(kept, now, cost, limit, a, b, c)
  end
  if blocked > 0 or not fits and ARGV[at + 2] == '0' then
    allowed = false
  end
  asked[index] = {rule, cost, limit, a, b, c, kept, marks, blocked, text, moved, fits}
end

for index = 1, #KEYS do
  local rule, cost, limit, a, b, c, kept, marks, blocked, text, moved, fits = unpack(asked[index], 1, 12)
  local charged = allowed and fits and cost > 0
  if charged then
    rule.charge(kept, now, cost, limit, a, b, c)
  end
  if charged or moved or rule.told and text then
    text = (rule.told or told)(kept, now, cost, limit, a, b, c)
  end
  local place = 3 * index
  reply[place - 1] = fits and 1 or 0
  reply[place] = blocked > 0 and string.format('%d', blocked) or 0
  local own = marks and marks.own
  reply[place + 1] = (own and string.format('=%d %d %d %d %d|', own[2] - now, limit, a, b, c) or '') .. (text or '')
  -- A denial writes only what no request could have left: a state from the future, one that never dies.
  if cost > 0 and purpose == 'charge'
    and (charged or moved or text and redis.call('PTTL', KEYS[index]) == -1) then
    save(rule, KEYS[index], kept, text, marks, now, shortest, limit, a, b, c)
  end
end
return table.concat(reply, ';')
