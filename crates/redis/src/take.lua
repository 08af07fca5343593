-- Takes as much as there is, in one step: the most units that all policies grant, and each is charged so many or
-- the cost of its own charge, if that is less. KEYS: the state of each charge. ARGV: the time, or nothing; the verb;
-- then for each key its rule, its cost, whether it is soft as in `charge.lua`, four numbers of the rule, the limit first,
-- and its hours or nothing. If some charges are one of several, as in `first_of.lua`, there follow for each charge its
-- group and its place in it; then the first of a group that grants any unit is charged.
-- Returns the number of units and, behind a `;`, the time and the text of each charge, as `charge.lua` does.
local now, shortest = moment(ARGV[1])
local units, is_blocked, charges = 0, false, {}
for index = 1, #KEYS do
  units = math.max(units, ARGV[8 * index - 4] + 0)
end
local largest = units

-- How many units, up to this many, are granted: a rule that admits a number admits every smaller one.
local function granted(rule, state, most, limit, a, b, c)
  local least, beyond = 0, math.min(most, limit) + 1
  while beyond - least > 1 do
    local middle = math.floor((least + beyond) / 2)
    if rule.admits(state, now, middle, limit, a, b, c) then
      least = middle
    else
      beyond = middle
    end
  end
  return least
end

for index = 1, #KEYS do
  local at = 8 * index - 5
  local rule, most, is_soft = rules[ARGV[at]], ARGV[at + 1] + 0, ARGV[at + 2] ~= '0'
  local hours = ARGV[at + 7] ~= '' and ARGV[at + 7]
  local policy = {rule, hours, ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0}
  local state, marks, text, changed, blocked, own, leased, limit, a, b, c, longest = open(policy, KEYS[index], now, true)
  if leased > 0 then
    own = marking().text_of({lease = marks.lease}) .. '|' .. own
  end
  charges[index] = {
    rule = rule, most = most, softness = ARGV[at + 2], is_soft = is_soft, is_blocked = blocked ~= '0', state = state, marks = marks, text = text,
    changed = changed, grants = math.max(granted(rule, state, largest + leased, limit, a, b, c) - leased, 0),
    answer = ';' .. blocked .. ';' .. own, numbers = {limit, a, b, c, longest and hours}, longest = longest,
  }
end
local places, payers = 8 * #KEYS + 2, {}
if #ARGV > places then
  for index, charge in ipairs(charges) do
    charge.group, charge.rank = ARGV[places + 2 * index - 1], ARGV[places + 2 * index] + 0
    local gives = not charge.is_blocked and (charge.most == 0 or charge.grants > 0)
    if charge.group ~= '' and gives and charge.rank < (payers[charge.group] or math.huge) then
      payers[charge.group] = charge.rank
    end
  end
  for _, charge in ipairs(charges) do
    local payer = payers[charge.group]
    charge.is_passed = charge.group ~= '' and charge.rank ~= payer and (payer or charge.softness == '4')
    -- A charge of a group limits the others as one that is always made.
    charge.is_soft = charge.group == '' and charge.is_soft
  end
end
for _, charge in ipairs(charges) do
  if not charge.is_passed then
    is_blocked = is_blocked or charge.is_blocked and charge.softness ~= '2'
    if charge.most > 0 and not charge.is_soft then
      units = math.min(units, charge.grants)
    end
  end
end
if is_blocked then
  units = 0
end

local answer = {string.format('%d;%d', units, now)}
for index, charge in ipairs(charges) do
  local rule, state, text, limit = charge.rule, charge.state, charge.text, charge.numbers[1]
  -- Where nothing is to be had, one unit is asked for, and denied.
  local cost = math.min(charge.most, math.max(units, 1))
  local fits = limit > 0 and cost <= charge.grants
  local charged = units > 0 and fits and cost > 0 and not charge.is_blocked and not charge.is_passed
  if charged then
    rule.charge(state, now, cost, unpack(charge.numbers))
  end
  if charged or charge.changed or rule.words and text then
    text = (rule.words or words_of)(state, now, cost, unpack(charge.numbers))
  end
  -- As in `charge.lua`.
  if charge.most > 0 and (charged or charge.changed
    or text and dies_wrongly(rule, KEYS[index], state, now, charge.longest, unpack(charge.numbers))) then
    save(rule, KEYS[index], state, text, charge.marks, now, shortest, charge.longest, unpack(charge.numbers))
  end
  answer[index + 1] = (charge.is_passed and ';4' or fits and ';1' or ';0') .. charge.answer .. (text or '')
end
return table.concat(answer)
