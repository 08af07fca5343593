-- Takes as much as there is, in one step: the most units that all policies grant, and each is charged so many or
-- the cost of its own charge, if that is less. KEYS: the state of each charge. ARGV: the time, or nothing; the verb;
-- then for each key its rule, its cost, whether it is soft as in `charge.lua`, four numbers of the rule, the limit first,
-- and its hours or nothing.
-- Returns the number of units and, behind a `;`, the time and what is told of each charge, as `charge.lua` does.
local now, shortest = moment(ARGV[1])
local units, is_blocked, charges = 0, false, {}

-- How many units, up to this many, are granted: a rule that admits a number admits every smaller one.
local function granted(rule, kept, most, limit, a, b, c)
  local least, beyond = 0, math.min(most, limit) + 1
  while beyond - least > 1 do
    local middle = math.floor((least + beyond) / 2)
    if rule.admits(kept, now, middle, limit, a, b, c) then
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
  local limit, a, b, c = ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0
  if rule.present then
    a, b, c = rule.present(now, a, b, c)
  end
  local kept, marks, text = (rule.load or load)(KEYS[index])
  local blocked, own, moved, held = '0', '', false, 0
  if marks then
    blocked, own, moved, limit, a, b, c = marking().apply_marks(rule, marks, now, true, limit, a, b, c)
  end
  local lasts = {limit, a, b, c}
  local hours = own == '' and ARGV[at + 7] ~= '' and ARGV[at + 7]
  if hours then
    limit, a, b, c = in_force(rule, kept, now, hours)
  end
  local possible = text and rule.moved_back(kept, now, limit, a, b, c)
  if possible then
    kept, moved = possible, true
  end
  if marks and marks.lease then
    local ended
    held, ended = marking().ending(rule, marks, kept, now, limit, a, b, c)
    moved = moved or ended
    if held > 0 then
      own = marking().text_of({lease = marks.lease}) .. '|' .. own
    end
  end
  is_blocked = is_blocked or blocked ~= '0' and ARGV[at + 2] ~= '2'
  units = math.max(units, most)
  charges[index] = {
    rule = rule, most = most, is_soft = is_soft, is_blocked = blocked ~= '0', kept = kept, marks = marks, text = text, moved = moved,
    grants = math.max(granted(rule, kept, most + held, limit, a, b, c) - held, 0),
    told = ';' .. blocked .. ';' .. own, numbers = {limit, a, b, c, hours},
    lasts = lasts,
  }
end
for _, charge in ipairs(charges) do
  if charge.most > 0 and not charge.is_soft then
    units = math.min(units, charge.grants)
  end
end
if is_blocked then
  units = 0
end

local answer = {string.format('%d;%d', units, now)}
for index, charge in ipairs(charges) do
  local rule, kept, text, limit = charge.rule, charge.kept, charge.text, charge.numbers[1]
  -- Where nothing is to be had, one unit is asked for, and denied.
  local cost = math.min(charge.most, math.max(units, 1))
  local fits = limit > 0 and cost <= charge.grants
  local charged = units > 0 and fits and cost > 0 and not charge.is_blocked
  if charged then
    rule.charge(kept, now, cost, unpack(charge.numbers))
  end
  if charged or charge.moved or rule.told and text then
    text = (rule.told or told)(kept, now, cost, unpack(charge.numbers))
  end
  -- As in `charge.lua`.
  if charge.most > 0 and (charged or charge.moved
    or text and dies_wrongly(rule, KEYS[index], kept, now, unpack(charge.lasts))) then
    save(rule, KEYS[index], kept, text, charge.marks, now, shortest, unpack(charge.lasts))
  end
  answer[index + 1] = (fits and ';1' or ';0') .. charge.told .. (text or '')
end
return table.concat(answer)
