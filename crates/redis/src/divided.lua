-- Decides on requests as `charge.lua` and `take.lua` do, where some limits are divided among tenants, or guaranteed in part to
-- children. No policy has hours.
-- KEYS: for each charge its state; if its limit is divided, the state is that of the shared key, and the tenants and the state of the
-- tenant's key follow, which is never charged and has the marks; if its limit is guaranteed in part, the children follow. A limit on
-- slots is divided by the rule of `holders.lua`, and any other by that of `shares.lua`.
-- ARGV: the time, or nothing; `charge`, `peek`, `deny`, or `take` to take as much as there is; how many policies there are, and for
-- each its rule and four numbers as in `charge.lua`, the three numbers of its scale, which are 0 if it is not divided, and the units
-- that it guarantees to each child; then for each request how many charges it has, and for each its policy, its cost, whether it is
-- soft, and the weight and the field of the tenant, or the name of the child in place of the field, which is empty for none.
-- Returns what `charge.lua` does, or `take.lua` for each request. If the limit is divided, or a part of it is kept for other children,
-- `%`, the numbers of the share or of the claim and `|` come before the state; if the key was blocked before, and is blocked for longer
-- from now on, `5` comes in place of `2`, or `6` if the charge fits but for the block.
local KEYS, ARGV = KEYS, ARGV
local now, shortest = moment(ARGV[1])
local purpose = ARGV[2]
local takes, writes = purpose == 'take', purpose == 'charge' or purpose == 'take'
local policies, at = {}, 4
for index = 1, ARGV[3] + 0 do
  local rule, penalty = rules[ARGV[at]], nil
  if not rule then
    local name, numbers = string.match(ARGV[at], '^([^|]*)|(.*)$')
    rule, penalty = rules[name], numbers
  end
  local limit, tenants, guaranteed = ARGV[at + 1] + 0, ARGV[at + 7] + 0, ARGV[at + 8] + 0
  policies[index] = {rule, false, limit, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0, penalty = penalty,
    guaranteed = guaranteed, width = tenants > 0 and 3 or guaranteed > 0 and 2 or 1,
    scale = tenants > 0 and {limit = limit, fill = ARGV[at + 5] + 0, active_for = ARGV[at + 6] + 0, tenants = tenants}}
  at = at + 9
end

-- Returns whether the limit has room for this many units.
local function has_room(charge, units)
  local limit, a, b, c = unpack(charge.numbers)
  return limit > 0 and units <= limit
    and (units == 0 or charge.leased + units <= limit and charge.rule.admits(charge.state, now, charge.leased + units, limit, a, b, c))
end

-- Returns how many units a charge grants, up to this many: a rule that admits a number admits every smaller one.
local function granted(charge, most)
  if charge.claim then
    return children.grants(charge.claim)
  end
  local share, limit = charge.share, charge.numbers[1]
  local least, beyond = 0, math.min(share and limit or most, limit) + 1
  while beyond - least > 1 do
    local middle = math.floor((least + beyond) / 2)
    if has_room(charge, middle) then
      least = middle
    else
      beyond = middle
    end
  end
  return share and shares.of(share, least) or least
end

-- Returns the units that the limit needs to have, so that a request of this cost passes.
local function needed(charge, cost)
  if charge.claim then
    return children.needs(charge.claim, cost)
  elseif charge.holders then
    return cost
  end
  return charge.share and shares.needs(charge.share, cost) or cost
end

-- Returns the time after which the limit is whole again.
local function whole_after(charge)
  local limit, a, b, c = unpack(charge.numbers)
  local held = charge.leased > 0 and shares.time_of(charge.tenants, charge.leased) or 0
  return charge.rule.reset_after(charge.state, now, limit, a, b, c) + held
end

-- Finds out what a request may take beside the guarantees of others.
local function ask_for_guarantee(charge, key, units, name)
  local limit, a, b, c = unpack(charge.numbers)
  local scale = children.scale(units, charge.rule == rules.fixed_window, limit, a, c)
  if not scale then
    return
  end
  charge.family = children.load(key)
  local left = math.max(charge.rule.remaining(charge.state, now, limit, a, b, c) - charge.leased, 0)
  charge.claim, charge.child = children.ask(charge.family, name ~= '' and name or nil, now, left, scale)
  charge.told = children.text(charge.claim)
end

-- Finds out what a tenant may take of the slots of a shared key.
local function ask_for_slots(charge, key, scale, weight, field)
  local limit, _, slot = unpack(charge.numbers)
  local taken = charge.rule.taken(charge.state, now)
  charge.holders, charge.free, charge.state.tenant = holders.load(key, charge.key, scale, field), math.max(limit - taken, 0), field
  holders.catch_up(charge.holders, now, taken)
  -- A request without a slot only asks, and leaves those that have ended to the next one that follows them.
  charge.only_asks = not (writes and charge.cost > 0 and slot > 0)
  if charge.only_asks then
    charge.share = holders.look(charge.holders, field, now)
  else
    charge.share, charge.holder = holders.ask(charge.holders, field, weight, now)
  end
end

-- Follows the end of a request for slots.
local function conclude_slots(charge, charged, is_refused)
  local it, holder = charge.holders, charge.holder
  if charged then
    holders.take(it, holder, charge.cost)
  elseif is_refused then
    holders.refuse(it, holder, charge.share, charge.cost)
  else
    holders.pass_by(it, holder)
  end
  holders.save(it, now, it.held > 0 and charge.rule.reset_after(charge.state, now) or 0, shortest)
end

-- Opens what the charge at this place of ARGV is about. Its first key is at this index.
local function opened(place, key)
  local policy, cost = policies[ARGV[place] + 0], ARGV[place + 1] + 0
  local state, marks, text, changed, blocked, own, leased, limit, a, b, c = open(policy, KEYS[key], now, true)
  if leased > 0 then
    own = marking().text_of({lease = marks.lease}) .. '|' .. own
  end
  local charge = {
    rule = policy[1], penalty = policy.penalty, cost = cost, most = cost, softness = ARGV[place + 2], key = KEYS[key], state = state,
    marks = marks, text = text, changed = changed, blocked = blocked, own = own, leased = leased, numbers = {limit, a, b, c},
    told = '', width = policy.width,
  }
  if not policy.scale then
    charge.blocking = charge
    if policy.guaranteed > 0 then
      ask_for_guarantee(charge, KEYS[key + 1], policy.guaranteed, ARGV[place + 4])
    end
    return charge
  end
  local weight, field = ARGV[place + 3] + 0, ARGV[place + 4]
  if charge.rule == rules.concurrency then
    ask_for_slots(charge, KEYS[key + 1], policy.scale, weight, field)
  else
    charge.tenants = shares.load(KEYS[key + 1], policy.scale, field)
    if writes then
      charge.share, charge.tenant = shares.ask(charge.tenants, field, weight, now)
    else
      charge.share = shares.look(charge.tenants, field, now)
      charge.told = shares.text(charge.share)
    end
  end
  local home = {key = KEYS[key + 2]}
  home.state, home.marks, home.text, home.changed, charge.blocked = open(policy, home.key, now, true)
  charge.blocking = home
  return charge
end

-- Decides on the charges of one request. `place` is the index of the first in ARGV, and `key` that of its first key. Returns the text
-- of the charges, and the index of the key behind them.
local function decide(count, place, key)
  local charges, allowed, units = {}, purpose ~= 'deny', 0
  for index = 1, count do
    charges[index] = opened(place, key)
    place, key = place + 5, key + charges[index].width
    units = math.max(units, charges[index].most)
  end
  if takes then
    local most = units
    for _, charge in ipairs(charges) do
      if charge.blocked ~= '0' and charge.softness ~= '2' then
        units = 0
      elseif charge.most > 0 and charge.softness == '0' then
        units = math.min(units, granted(charge, most))
      end
    end
  end
  -- The charges that deny, and how many of them do it other than by a limit that gives the request a turn.
  local denying, otherwise = {}, 0
  for index, charge in ipairs(charges) do
    if takes then
      -- Where nothing is to be had, one unit is asked for, and denied.
      charge.cost = math.min(charge.most, math.max(units, 1))
    end
    charge.fits = has_room(charge, needed(charge, charge.cost))
      and (not charge.holders or charge.cost == 0 or holders.passes(charge.share, charge.free, charge.cost))
    charge.gives_turn = charge.tenants and charge.blocked == '0' and not charge.fits and charge.cost > 0
      and charge.cost <= charge.tenants.scale.limit
    if charge.blocked ~= '0' and charge.softness ~= '2' or not charge.fits and charge.softness == '0' then
      denying[#denying + 1] = index
      otherwise = otherwise + (charge.gives_turn and 0 or 1)
    end
  end
  allowed = allowed and #denying == 0

  local texts = {}
  for index, charge in ipairs(charges) do
    local rule, state, cost, text, blocking = charge.rule, charge.state, charge.cost, charge.text, charge.blocking
    local limit, a, b, c = unpack(charge.numbers)
    local is_open, verdict = charge.blocked == '0', charge.fits and ';1;' or ';0;'
    local charged = allowed and charge.fits and cost > 0 and is_open
    if charge.penalty and cost > 0 and purpose == 'charge' and charge.softness == '0' and not (is_open and charge.fits) then
      blocking.marks = blocking.marks or {}
      local noted, length = marking().penalize(blocking.marks, charge.penalty, now)
      blocking.changed = blocking.changed or noted
      if length then
        local was_blocked = (charge.share or charge.claim) and not is_open
        verdict = not was_blocked and ';2;' or charge.fits and ';6;' or ';5;'
        charge.blocked = string.format('%d', length)
      end
    end
    if charged then
      rule.charge(state, now, cost, limit, a, b, c)
    end
    if charged or charge.changed or rule.words and text then
      text = (rule.words or words_of)(state, now, cost, limit, a, b, c)
    end
    -- As in `charge.lua`.
    if charge.most > 0 and writes and not charge.only_asks and (charged or charge.changed
      or text and dies_wrongly(rule, charge.key, state, now, nil, limit, a, b, c)) then
      save(rule, charge.key, state, text, charge.marks, now, shortest, nil, limit, a, b, c)
    end
    local is_alone = #denying == 0 or #denying == 1 and denying[1] == index
    if charge.holder then
      conclude_slots(charge, charged, is_open and not charge.fits and is_alone)
    end
    if charge.holders then
      charge.told = holders.text(charge.share, charged and charge.holder and cost or 0)
    end
    if charge.tenant then
      if charged then
        shares.charge(charge.tenants, charge.tenant, cost)
        shares.tell_turn(charge.tenants, charge.tenant, charge.share)
      elseif otherwise == 0 and charge.gives_turn then
        shares.refuse(charge.tenants, charge.tenant, charge.share, cost, whole_after(charge))
      else
        shares.stop_waiting(charge.tenants, charge.tenant)
      end
      charge.told = shares.text(charge.share)
      shares.save(charge.tenants, shortest)
    end
    if charge.tenant or charge.holder then
      if blocking.changed and cost > 0 and purpose == 'charge' then
        save(rule, blocking.key, blocking.state, blocking.text or words_of(blocking.state), blocking.marks, now, shortest, nil, limit, a, b, c)
      end
    end
    if charge.claim and writes then
      if charged and charge.child then
        children.charge(charge.family, charge.child, cost, charge.claim.scale)
      end
      children.save(charge.family, charge.claim.scale, shortest)
    end
    texts[index] = verdict .. charge.blocked .. ';' .. charge.told .. charge.own .. (text or '')
  end
  local given = takes and string.format('%d;', allowed and units or 0) or ''
  return given .. string.format('%d', now) .. table.concat(texts), key
end

local lines, key = {}, 1
while key <= #KEYS do
  local count, next_key = ARGV[at] + 0, key
  for index = 1, count do
    next_key = next_key + policies[ARGV[at + 5 * index - 4] + 0].width
  end
  if key == 1 and next_key > #KEYS then
    return (decide(count, at + 1, key))
  end
  -- As in `charge.lua`.
  local is_decided, text = pcall(decide, count, at + 1, key)
  if is_decided then
    lines[#lines + 1] = text
  else
    local message, is_of_all = report(text)
    if is_of_all then
      return {err = message}
    end
    lines[#lines + 1] = '-' .. message
  end
  key, at = next_key, at + 1 + 5 * count
end
return table.concat(lines, '\n')
