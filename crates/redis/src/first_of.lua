-- Decides on requests as `charge.lua` does, where some charges are one of several: of each group the first is made that
-- has room. No policy has a penalty or hours.
-- KEYS and ARGV are those of `charge.lua`, but for each charge come its policy, its cost, whether it is soft, its group,
-- or nothing if it is always made, and its place in the group. A charge of a group is `3` in place of soft, or `4` if the
-- request passes without any of the group.
-- Returns what `charge.lua` does, with `4` in place of whether it fits for a charge that is passed over.
local KEYS, ARGV = KEYS, ARGV
local now, shortest = moment(ARGV[1])
local purpose = ARGV[2]
local policies, at = {}, 4
for index = 1, ARGV[3] + 0 do
  policies[index] = {rules[ARGV[at]], false, ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0}
  at = at + 5
end

-- Decides on the charges of one request, which are those of these keys. `place` is the index of the first in ARGV.
-- Returns the text of the charges.
local function decide(first, last, place)
  local charges, payers, allowed = {}, {}, purpose ~= 'deny'
  for index = first, last do
    local policy, key, cost = policies[ARGV[place] + 0], KEYS[index], ARGV[place + 1] + 0
    local softness, group, rank = ARGV[place + 2], ARGV[place + 3], ARGV[place + 4] + 0
    place = place + 5
    local rule = policy[1]
    local state, marks, text, changed, blocked, own, leased, limit, a, b, c, longest = open(policy, key, now, true)
    if leased > 0 then
      own = marking().text_of({lease = marks.lease}) .. '|' .. own
    end
    local fits = limit > 0 and cost <= limit
      and (cost == 0 or leased + cost <= limit and rule.admits(state, now, leased + cost, limit, a, b, c))
    charges[#charges + 1] = {
      rule = rule, key = key, cost = cost, softness = softness, group = group, rank = rank, state = state, marks = marks,
      text = text, changed = changed, blocked = blocked, own = own, numbers = {limit, a, b, c}, longest = longest, fits = fits,
    }
    if group ~= '' then
      if fits and blocked == '0' and rank < (payers[group] or math.huge) then
        payers[group] = rank
      end
    elseif blocked ~= '0' and softness ~= '2' or not fits and softness == '0' then
      allowed = false
    end
  end
  for _, charge in ipairs(charges) do
    local payer = payers[charge.group]
    charge.is_passed = charge.group ~= '' and charge.rank ~= payer and (payer or charge.softness == '4') and true
    if charge.group ~= '' and not payer and not charge.is_passed then
      allowed = false
    end
  end

  local texts = {}
  for index, charge in ipairs(charges) do
    local rule, state, text, cost, longest = charge.rule, charge.state, charge.text, charge.cost, charge.longest
    local limit, a, b, c = unpack(charge.numbers)
    local charged = allowed and charge.fits and not charge.is_passed and cost > 0 and charge.blocked == '0'
    if charged then
      rule.charge(state, now, cost, limit, a, b, c)
    end
    if charged or charge.changed or rule.words and text then
      text = (rule.words or words_of)(state, now, cost, limit, a, b, c)
    end
    -- As in `charge.lua`.
    if cost > 0 and purpose == 'charge' and (charged or charge.changed
      or text and dies_wrongly(rule, charge.key, state, now, longest, limit, a, b, c)) then
      save(rule, charge.key, state, text, charge.marks, now, shortest, longest, limit, a, b, c)
    end
    local verdict = charge.is_passed and ';4;' or charge.fits and ';1;' or ';0;'
    texts[index] = verdict .. charge.blocked .. ';' .. charge.own .. (text or '')
  end
  return table.concat(texts)
end

local time, lines, line, first, count = string.format('%d', now), {}, 0, 1, #KEYS
while first <= count do
  local requests, charges = ARGV[at] + 0, ARGV[at + 1] + 0
  if charges == count then
    return time .. decide(1, count, at + 2)
  end
  for _ = 1, requests do
    -- As in `charge.lua`.
    local is_decided, text = pcall(decide, first, first + charges - 1, at + 2)
    line, first = line + 1, first + charges
    if is_decided then
      lines[line] = time .. text
    else
      local message, is_of_all = report(text)
      if is_of_all then
        return {err = message}
      end
      lines[line] = '-' .. message
    end
  end
  at = at + 2 + 5 * charges
end
return table.concat(lines, '\n')
