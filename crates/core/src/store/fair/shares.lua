-- The rule of `shares.rs`, function by function, for the tenants of one shared limit. They are a hash, of which a request reads
-- its own tenant and a few others:
-- - `.`: the latest moment; by how much the server's clock is behind it, having stepped back; how many tenants there are; the next
--   to visit; how many wait; the weights that accrue, and those that do not; virtual time; the claims of both; the visits that are
--   due; the last tag; the last moment at which a tenant was told to come; how many turns are large. Numbers with a fraction have all
--   their digits.
-- - `~`, while requests have turns: how many; the time of a unit; how long ago the first slot began; how long each slot is; what is kept;
--   and what is booked in each.
-- - `=` and a name: the place of this tenant. `*` is the place of all that are not told apart.
-- - `#` and a place: the tenant there: weight, standing, whether it waits, the units of its turn, when it has it, whether it was given for
--   more than a quarter of the limit, when it has last asked, tag, since, still, and its field.
local shares = {}
local ACCRUING, SATED, LAPSED = 1, 2, 0
-- The virtual time that is counted to.
local LATEST = 1073741824
-- How many slots the turns have.
local SLOTS = 64
-- The least that a slot is long.
local NARROWEST = 1
-- What is granted between a turn and the request that comes for it.
local ROUNDED = 3
-- The least that a unit takes.
local SHORTEST = 1e-10
-- What is larger, no rule writes.
local LARGEST = 1e60

function shares.failed(key)
  error('no tenants are under the key ' .. key .. '; reset it')
end

-- Returns the tenants under this key. A scale is the units of the whole limit, the time in which they are granted anew, how long a
-- tenant counts that does not ask, and how many are told apart.
function shares.load(key, scale, own)
  local texts = redis.call('HMGET', key, '.', own, '*', '~')
  local it = {
    key = key, scale = scale, at = 0, behind = 0, count = 0, hand = 1, waiting = 0, accruing = 0, sated = 0, virtual = 0,
    growing = 0, still = 0, due = 0, furthest = 0, told = 0, large = 0, tenants = {}, changed = {}, places = {}, gone = {},
  }
  it.places[own], it.places['*'] = texts[2] and texts[2] + 0 or false, texts[3] and texts[3] + 0 or false
  if texts[1] then
    local numbers = {}
    for number in string.gmatch(texts[1], '%S+') do
      numbers[#numbers + 1] = number + 0
    end
    if #numbers ~= 14 then
      shares.failed(key)
    end
    it.at, it.behind, it.count, it.hand, it.waiting, it.accruing, it.sated = unpack(numbers, 1, 7)
    it.virtual, it.growing, it.still, it.due, it.furthest, it.told, it.large = unpack(numbers, 8, 14)
    -- No more tenants than this are ever told apart, and all others are one.
    if not (it.count <= 1025 and it.due <= it.count) then
      shares.failed(key)
    end
  elseif texts[2] or texts[3] or texts[4] then
    shares.failed(key)
  end
  it.turns = shares.read_turns(key, texts[4])
  return it
end

-- Reads what the turns are, or returns those of nobody.
function shares.read_turns(key, text)
  local numbers = {}
  for number in string.gmatch(text or '', '%S+') do
    numbers[#numbers + 1] = number + 0
  end
  if not text then
    return {given = 0, unit = 0, begun = 0, kept = 0, booked = {}}
  end
  local given, unit, begun, width, kept = unpack(numbers, 1, 5)
  local is_possible = #numbers >= 5 and #numbers <= 5 + SLOTS and given >= 1 and unit >= SHORTEST and unit <= LARGEST
    and width >= NARROWEST and width <= LARGEST and begun >= 0 and begun <= width and kept >= 0 and kept <= LARGEST
  for index = 6, #numbers do
    is_possible = is_possible and numbers[index] >= 0 and numbers[index] <= 1.5 * width
  end
  if not is_possible then
    shares.failed(key)
  end
  return {is_written = true, given = given, unit = unit, begun = begun, width = width, kept = kept, booked = {unpack(numbers, 6)}}
end

-- Reads the tenants at these places, those that were not read before.
function shares.read(it, places)
  local fields, of = {}, {}
  for _, place in ipairs(places) do
    if not it.tenants[place] then
      fields[#fields + 1], of[#of + 1] = '#' .. place, place
    end
  end
  if #fields == 0 then
    return
  end
  for index, text in ipairs(redis.call('HMGET', it.key, unpack(fields))) do
    local pattern = '^(%d+) (%d) (%d) (%d+) (%d+) (%d) (%d+) (%S+) (%S+) (%S+) (.+)$'
    local weight, standing, waits, turn, turn_at, is_large, seen, tag, since, still, field = string.match(text or '', pattern)
    if not weight then
      shares.failed(it.key)
    end
    it.tenants[of[index]] = {
      weight = weight + 0, standing = standing + 0, waits = waits == '1', seen = seen + 0, tag = tag + 0,
      since = since + 0, still = still + 0, field = field, turn = turn + 0, turn_at = turn_at + 0, is_large = is_large == '1',
    }
  end
end

-- Returns the tenant at this place, which may change from now on.
function shares.tenant(it, place)
  if not it.tenants[place] then
    shares.read(it, {place})
  end
  it.changed[place] = true
  return it.tenants[place]
end

-- Writes what has changed. It lasts until it would make no difference if all tenants were forgotten.
function shares.save(it, shortest)
  local words = {
    'HSET', it.key, '.', string.format('%d %d %d %d %d %d %d %.17g %.17g %.17g %.17g %.17g %d %d', it.at, it.behind, it.count, it.hand,
      it.waiting, it.accruing, it.sated, it.virtual, it.growing, it.still, it.due, it.furthest, it.told, it.large),
  }
  if it.turns.given > 0 then
    words[#words + 1], words[#words + 2] = '~', shares.text_of_turns(it.turns)
  elseif it.turns.is_written then
    it.gone['~'] = true
  end
  for place in pairs(it.changed) do
    if place <= it.count then
      local tenant = it.tenants[place]
      words[#words + 1] = '#' .. place
      words[#words + 1] = string.format('%d %d %d %d %d %d %d %.17g %.17g %.17g %s', tenant.weight, tenant.standing,
        tenant.waits and 1 or 0, tenant.turn, tenant.turn_at, tenant.is_large and 1 or 0, tenant.seen, tenant.tag, tenant.since, tenant.still, tenant.field)
      words[#words + 1], words[#words + 2] = tenant.field, place
      it.gone[tenant.field] = nil
    end
    if #words > 4000 then
      redis.call(unpack(words))
      words = {'HSET', it.key}
    end
  end
  if #words > 2 then
    redis.call(unpack(words))
  end
  local gone = {'HDEL', it.key}
  for field in pairs(it.gone) do
    gone[#gone + 1] = field
  end
  if #gone > 2 then
    redis.call(unpack(gone))
  end
  local owed = math.max(it.furthest - it.virtual, 0) * math.max(it.accruing + it.sated, 1)
  local lasts = it.scale.active_for + math.max(owed, it.told - it.at)
  local ttl = math.min(math.ceil(lasts / 1000) + 1, 9007199254740)
  redis.call('PEXPIRE', it.key, string.format('%d', math.max(ttl, shortest)))
end

function shares.text_of_turns(turns)
  local numbers = {string.format('%d %.17g %.17g %.17g %.17g', turns.given, turns.unit, turns.begun, turns.width, turns.kept)}
  for slot = 1, #turns.booked do
    numbers[slot + 1] = string.format('%.17g', turns.booked[slot])
  end
  return table.concat(numbers, ' ')
end

function shares.time_of(it, units)
  return it.scale.fill / math.max(it.scale.limit, 1) * units
end

function shares.debt(it, tenant)
  return math.max(tenant.tag - it.virtual, 0)
end

function shares.part(tenant, virtual)
  if tenant.standing ~= ACCRUING then
    return 0
  end
  return (virtual - tenant.since) * tenant.weight
end

-- A sum of nothing is 0, whatever was rounded before.
function shares.without(sum, part, weights)
  if weights == 0 then
    return 0
  end
  return math.max(sum - part, 0)
end

function shares.count_out(it, tenant)
  if tenant.standing == ACCRUING then
    local part = shares.part(tenant, it.virtual)
    it.accruing = it.accruing - tenant.weight
    it.growing = shares.without(it.growing, part, it.accruing)
  elseif tenant.standing == SATED then
    it.sated = it.sated - tenant.weight
    it.still = shares.without(it.still, tenant.still, it.sated)
  end
end

function shares.count_in(it, tenant)
  it.furthest = math.max(it.furthest, tenant.tag)
  if tenant.standing == ACCRUING then
    tenant.since = math.min(tenant.tag, it.virtual)
    it.accruing = it.accruing + tenant.weight
    it.growing = it.growing + shares.part(tenant, it.virtual)
  elseif tenant.standing == SATED then
    it.sated = it.sated + tenant.weight
    it.still = it.still + tenant.still
  end
end

function shares.stop_waiting(it, tenant)
  if tenant.waits then
    it.waiting, tenant.waits = it.waiting - 1, false
  end
end

-- Returns the whole units below the share of the burst of a tenant of this weight.
function shares.portion(it, weight)
  return math.floor(math.max(it.scale.limit * weight - 1, 0) / math.max(it.accruing + it.sated, weight))
end

function shares.most(it, tenant)
  local active = math.max(it.accruing + it.sated, tenant.weight)
  return math.max(it.scale.fill * tenant.weight / active, shares.time_of(it, 1))
end

-- Returns whether a tenant has not taken its turn in time.
function shares.is_too_late(it, tenant, now)
  local lasts = tenant.turn <= shares.portion(it, tenant.weight) and math.huge or it.scale.fill / 4
  return tenant.turn > 0 and math.max(now - tenant.turn_at, 0) > math.min(lasts, it.scale.active_for)
end

function shares.visit_known(it, tenant)
  if shares.is_too_late(it, tenant, it.at) then
    shares.end_turn(it, tenant)
  end
  local most = shares.most(it, tenant)
  shares.count_out(it, tenant)
  if it.at - tenant.seen > it.scale.active_for then
    tenant.standing, tenant.still = LAPSED, 0
    shares.stop_waiting(it, tenant)
    return
  end
  local claim = (it.virtual - tenant.tag) * tenant.weight
  if claim < most or tenant.waits then
    tenant.standing, tenant.still = ACCRUING, 0
  else
    tenant.standing, tenant.still = SATED, most
  end
  shares.count_in(it, tenant)
end

function shares.visit(it, place)
  local tenant = shares.tenant(it, place)
  shares.visit_known(it, tenant)
  local keeps_turn = tenant.turn > 0 and it.count < it.scale.tenants
  if tenant.standing ~= LAPSED or keeps_turn or shares.debt(it, tenant) > 0 then
    return
  end
  shares.end_turn(it, tenant)
  -- The last one takes its place.
  it.places[tenant.field], it.gone[tenant.field] = false, true
  if place < it.count then
    local last = shares.tenant(it, it.count)
    it.tenants[place], it.places[last.field] = last, place
  end
  it.tenants[it.count], it.gone['#' .. it.count] = nil, true
  it.count = it.count - 1
end

-- The rule of `turns.rs`.
local turns_of = {}

-- Follows a limit that grants a unit in this time from now on.
function turns_of.count_in(turns, unit)
  if turns.unit ~= unit and turns.given > 0 then
    local by = unit / turns.unit
    for slot = 1, #turns.booked do
      turns.booked[slot] = turns.booked[slot] * by
    end
    turns.begun, turns.kept = turns.begun * by, turns.kept * by
    turns.width = math.max(turns.width * by, NARROWEST)
  end
  turns.unit = unit
end

-- Lets time pass: what is booked in it is kept from then on.
function turns_of.pass(turns, time)
  while time > 0 and #turns.booked > 0 do
    local left = math.max(turns.width - turns.begun, 0)
    local step = math.min(time, left)
    local passed = math.min(turns.booked[1], step)
    turns.kept, turns.booked[1], time = turns.kept + passed, turns.booked[1] - passed, time - step
    if step < left then
      turns.begun = turns.begun + step
    else
      turns.begun = 0
      local rest = table.remove(turns.booked, 1)
      if rest > 0 then
        turns.booked[1] = (turns.booked[1] or 0) + rest
      end
    end
  end
  if #turns.booked == 0 then
    turns.begun = 0
  end
end

-- Joins each two slots.
function turns_of.widen(turns)
  local booked = {}
  for slot = 1, math.ceil(#turns.booked / 2) do
    booked[slot] = turns.booked[2 * slot - 1] + (turns.booked[2 * slot] or 0)
  end
  turns.booked, turns.width = booked, 2 * turns.width
end

-- Makes two of each slot: what is booked in it stands at its beginning.
function turns_of.narrow(turns)
  local half, booked = turns.width / 2, {}
  for slot = 1, #turns.booked do
    local time = turns.booked[slot]
    local first = math.min(time, math.max(half - (slot == 1 and turns.begun or 0), 0))
    booked[2 * slot - 1], booked[2 * slot] = first, time - first
  end
  while booked[#booked] == 0 do
    booked[#booked] = nil
  end
  if turns.begun >= half then
    table.remove(booked, 1)
    turns.begun = turns.begun - half
  end
  turns.booked, turns.width = booked, half
end

function turns_of.slot(turns, after)
  return math.floor((after + turns.begun) / turns.width) + 1
end

function turns_of.begins(turns, slot)
  return (slot - 1) * turns.width - turns.begun
end

-- Returns the time of a slot that nobody has booked, from now on.
function turns_of.free(turns, slot)
  local begins = turns_of.begins(turns, slot)
  return math.max(math.max(begins + turns.width - math.max(begins, 0), 0) - (turns.booked[slot] or 0), 0)
end

-- Returns the time that is booked for this cost.
local function booked_for(cost, fill)
  return cost + (cost > fill - ROUNDED and ROUNDED or 0)
end

-- Returns what is kept beside a turn of this cost, if there is one, which comes after this time.
function turns_of.kept_beside(turns, cost, after, fill)
  local time = cost > 0 and booked_for(cost, fill) or 0
  if after > 0 then
    local booked = 0
    for slot = 1, math.min(turns_of.slot(turns, after), #turns.booked) do
      booked = booked + turns.booked[slot]
    end
    time = math.max(time - booked, 0)
  end
  return math.max(turns.kept - time, 0)
end

-- Returns the time after which what is booked in a slot has passed.
function turns_of.booked_until(turns, slot)
  return math.max(turns_of.begins(turns, slot), 0) + (turns.booked[slot] or 0)
end

-- Returns what a turn of so much time takes of what the limit has: what its tenant claims, and what is not free until the turn is due.
function turns_of.part_there(turns, time, need)
  local there = math.min(math.max(need.there - turns.kept, 0), time)
  if need.due > time then
    return math.min(there, need.claimed)
  end
  local last, free = math.min(turns_of.slot(turns, need.due), SLOTS), 0
  local after = math.max(turns_of.begins(turns, last) + turns.width - need.due, 0)
  for slot = 1, last do
    free = free + turns_of.free(turns, slot)
  end
  return math.min(there, math.max(time - math.max(free - after, 0), need.claimed))
end

-- Returns the first slot of so much free time, and when it has passed.
function turns_of.place(turns, time, need)
  if time <= 0 then
    return 1, 0
  end
  local begins, widest = math.max(need.due - time, 0), need.fill / 4
  while turns_of.slot(turns, begins) > SLOTS do
    turns_of.widen(turns)
  end
  local first = turns_of.slot(turns, begins)
  local last, free = first, 0
  while true do
    if last > SLOTS then
      turns_of.widen(turns)
      first, last, free = math.ceil(first / 2), SLOTS / 2 + 1, 0
      for slot = first, last - 1 do
        free = free + turns_of.free(turns, slot)
      end
    end
    local here = turns_of.free(turns, last)
    if here <= 0 or free + here < time then
      free, last = free + here, last + 1
    else
      local ready, is_narrow = turns_of.booked_until(turns, last) + (time - free), turns.width <= widest
      local held = math.max(ready, is_narrow and need.due or 0) - turns_of.booked_until(turns, first)
      if held <= math.max(need.fill - ROUNDED, time) + 1e-3 or not is_narrow and first == last then
        return first, ready
      elseif first < last then
        free, first = math.max(free - turns_of.free(turns, first), 0), first + 1
      else
        first, last = first + 1, last + 1
      end
    end
  end
end

-- Books so much of what is free from this slot on.
function turns_of.book_from(turns, first, time)
  for slot = first, SLOTS do
    local booked = math.min(time, turns_of.free(turns, slot))
    if booked > 0 then
      for before = #turns.booked + 1, slot do
        turns.booked[before] = 0
      end
      turns.booked[slot], time = turns.booked[slot] + booked, time - booked
    end
  end
end

-- Gives a turn: returns the time after which the limit has room for it. A need is the cost; when its tenant may have it; what the limit has,
-- and what of it the tenant claims; and the time in which the whole limit is granted.
function turns_of.give(turns, need)
  local narrowest = math.max(turns.unit / 4, NARROWEST)
  if turns.given == 0 then
    turns.begun, turns.width = 0, narrowest
  end
  turns.given = turns.given + 1
  while #turns.booked <= SLOTS / 4 and turns_of.slot(turns, need.due) <= SLOTS / 4 and turns.width / 2 >= narrowest do
    turns_of.narrow(turns)
  end
  local time = booked_for(need.cost, need.fill)
  local there = turns_of.part_there(turns, time, need)
  local first, ready = turns_of.place(turns, time - there, need)
  if there > 0 and turns.kept + there + math.max(ready, need.due) > need.fill then
    there = 0
    first, ready = turns_of.place(turns, time, need)
  end
  turns.kept = turns.kept + there
  turns_of.book_from(turns, first, time - there)
  if turns.width <= need.fill / 4 and ready <= need.due then
    return math.ceil(need.due)
  end
  return shares.later(ready - (time - need.cost))
end

-- Takes a part of a turn of this moment, which was of this cost.
function turns_of.take(turns, part, cost, fill)
  local time = booked_for(cost, fill) - booked_for(cost - part, fill)
  turns.kept = math.max(turns.kept - time, 0)
end

-- Ends a turn of this cost that comes after this time, whether it was taken or not.
function turns_of.finish(turns, cost, after, fill)
  turns.given = math.max(turns.given - 1, 0)
  if turns.given == 0 then
    turns.kept, turns.booked = 0, {}
    return
  end
  local time = booked_for(cost, fill)
  if after == 0 then
    local kept = math.min(time, turns.kept)
    turns.kept, time = turns.kept - kept, time - kept
  end
  local last = math.min(turns_of.slot(turns, after), #turns.booked)
  for index = last, last - #turns.booked, -1 do
    -- Up to its slot, backwards; then what is kept; then behind its slot.
    local slot = index > 0 and index or last - index
    local booked = index == 0 and turns.kept or turns.booked[slot]
    local taken = math.min(time, booked)
    time = time - taken
    if index == 0 then
      turns.kept = booked - taken
    else
      turns.booked[slot] = booked - taken
    end
  end
end

function shares.end_turn(it, tenant)
  if tenant.turn > 0 then
    turns_of.finish(it.turns, shares.time_of(it, tenant.turn), math.max(tenant.turn_at - it.at, 0), it.scale.fill)
    tenant.turn, tenant.turn_at = 0, 0
    it.large, tenant.is_large = math.max(it.large - (tenant.is_large and 1 or 0), 0), false
  end
end

-- Returns the virtual time, and the growing claims, when this time has passed.
function shares.after(it, passed)
  if it.accruing == 0 then
    return it.virtual + passed, 0
  end
  return it.virtual + passed / it.accruing, it.growing + passed
end

function shares.begin_anew(it)
  local places = {}
  for place = 1, it.count do
    places[place] = place
  end
  shares.read(it, places)
  for place = 1, it.count do
    local tenant = shares.tenant(it, place)
    tenant.tag, tenant.since = tenant.tag - it.virtual, tenant.since - it.virtual
  end
  it.furthest = math.max(it.furthest - it.virtual, 0)
  it.virtual = 0
end

function shares.advance(it, now)
  -- A clock that has stepped back is told from now on by how much it is behind.
  it.behind = it.behind + math.max(it.at - (now + it.behind), 0)
  local passed = now + it.behind - it.at
  it.at = now + it.behind
  it.virtual, it.growing = shares.after(it, passed)
  turns_of.count_in(it.turns, shares.time_of(it, 1))
  turns_of.pass(it.turns, passed)
  if it.virtual > LATEST then
    shares.begin_anew(it)
  end
  it.due = math.min(it.due + 2 + it.count * passed / it.scale.active_for, it.count)
  if it.due >= it.count then
    -- From the end, so that a visited tenant stands at the place of one that is forgotten, and each is visited once.
    it.hand = 1
  end
  local places, place = {}, it.hand
  for _ = 1, math.floor(it.due) do
    place = place > 1 and math.min(place - 1, it.count) or it.count
    places[#places + 1] = place
  end
  shares.read(it, places)
  while it.due >= 1 and it.count > 0 do
    it.due = it.due - 1
    it.hand = it.hand > 1 and math.min(it.hand - 1, it.count) or it.count
    shares.visit(it, it.hand)
  end
end

function shares.find(it, field, weight)
  local place = it.places[field]
  if place then
    return place
  end
  if it.count >= it.scale.tenants then
    field, weight = '*', 1
    place = it.places[field]
    if place then
      return place
    end
  end
  it.count = it.count + 1
  it.tenants[it.count] = {
    field = field, weight = weight, standing = LAPSED, tag = it.virtual, since = it.virtual, still = 0, seen = 0, waits = false,
    turn = 0, turn_at = 0,
  }
  it.places[field], it.gone['#' .. it.count] = it.count, nil
  return it.count
end

function shares.rouse(it, tenant, weight)
  shares.visit_known(it, tenant)
  local most, is_new = shares.most(it, tenant), tenant.standing == LAPSED
  shares.count_out(it, tenant)
  -- It may have been told to come later.
  tenant.seen = math.max(tenant.seen, it.at)
  if tenant.standing == LAPSED and shares.debt(it, tenant) == 0 then
    tenant.tag = it.virtual
  end
  weight = tenant.field == '*' and 1 or weight
  if weight ~= tenant.weight then
    local rest = (tenant.tag - it.virtual) * tenant.weight
    tenant.tag = it.virtual + rest / weight
    tenant.weight = weight
  end
  if not tenant.waits then
    tenant.tag = math.max(tenant.tag, it.virtual - most / tenant.weight)
  end
  tenant.standing, tenant.still = ACCRUING, 0
  shares.count_in(it, tenant)
  return is_new
end

-- Returns the share of a tenant, which is nothing if it is not known.
function shares.share_of(it, tenant, goes_ahead, virtual, growing, now)
  local debt, own, claim, weight, accruing, waits, turn, turn_after = 0, 0, 0, 1, 0, 0, 0, 0
  if tenant then
    weight = tenant.weight
    debt = math.max(tenant.tag - virtual, 0)
    own = shares.part(tenant, virtual) + tenant.still
    claim = (virtual - tenant.tag) * weight
    accruing = tenant.standing == ACCRUING and weight or 0
    waits = tenant.waits and 1 or 0
    turn, turn_after = shares.is_too_late(it, tenant, now) and 0 or tenant.turn, math.max(tenant.turn_at - now, 0)
  end
  local others, most, unit = math.max(growing + it.still - own, 0), 4294967295, shares.time_of(it, 1)
  local active = math.max(it.accruing + it.sated, weight)
  local portion, units = shares.portion(it, weight), math.min(math.ceil(others / unit), most)
  -- What a tenant can have of the limit that is alone, it claims.
  local of_weight = (units > 0 or it.accruing ~= accruing) and active / weight or 0
  local claimed = math.min(math.floor(math.max(claim / unit, 0)), most)
  local is_ahead = goes_ahead or portion == 0
  return {
    has_debt = debt > 0,
    goes_ahead = goes_ahead,
    claim = debt > 0 and 0 or math.min(claimed + (is_ahead and 1 or 0), most),
    claimed = claimed,
    portion = portion,
    others = units,
    is_contended = it.waiting > waits,
    balance = debt > 0 and shares.later(debt * weight * of_weight) or math.min(math.floor(math.max(claim * of_weight, 0)), 9007199254740991),
    pace = math.min(unit * of_weight, 9007199254740991),
    limit = it.scale.limit,
    turn = turn,
    turn_after = turn_after,
    kept = it.turns.kept > 0 and math.max(math.min(
      math.ceil(turns_of.kept_beside(it.turns, shares.time_of(it, turn), turn_after, it.scale.fill) / unit - 1e-6),
      it.large > 0 and it.scale.limit or math.floor(it.scale.limit / 2)), 0) or 0,
  }
end

-- Returns a wait after which this time has passed, however it was rounded.
function shares.later(time)
  return time > 0 and math.min(math.ceil(time) + 1, 9007199254740991) or 0
end

-- Returns what a request of this tenant may take, which is active from now on, and its tenant.
function shares.ask(it, field, weight, now)
  shares.advance(it, now)
  local tenant = shares.tenant(it, shares.find(it, field, weight))
  local is_new = shares.rouse(it, tenant, weight)
  return shares.share_of(it, tenant, is_new, it.virtual, it.growing, it.at), tenant
end

-- Returns what a request of this tenant might take.
function shares.look(it, field, now)
  local place = it.places[field] or it.places['*']
  local tenant = place and shares.tenant(it, place)
  local passed = math.max(now + it.behind - it.at, 0)
  local virtual, growing = shares.after(it, passed)
  turns_of.count_in(it.turns, shares.time_of(it, 1))
  turns_of.pass(it.turns, passed)
  return shares.share_of(it, tenant, not tenant or tenant.standing == LAPSED, virtual, growing, it.at + passed)
end

function shares.charge(it, tenant, cost)
  local had_turn = tenant.turn > 0 and tenant.turn_at <= it.at
  if had_turn and cost < tenant.turn then
    turns_of.take(it.turns, shares.time_of(it, cost), shares.time_of(it, tenant.turn), it.scale.fill)
    tenant.turn = tenant.turn - cost
  else
    shares.end_turn(it, tenant)
  end
  shares.stop_waiting(it, tenant)
  local time, most = shares.time_of(it, cost), shares.most(it, tenant)
  local rest = cost <= shares.portion(it, tenant.weight) and most - time or most
  shares.count_out(it, tenant)
  if had_turn or shares.debt(it, tenant) == 0 then
    tenant.tag = math.max(tenant.tag + time / tenant.weight, it.virtual - rest / tenant.weight)
  end
  shares.count_in(it, tenant)
end

-- Writes the turn of a tenant into its share.
function shares.tell_turn(it, tenant, share)
  share.turn, share.turn_after = tenant.turn, math.max(tenant.turn_at - it.at, 0)
end

-- Notes that the limit, which is whole again after this time, had no room for a request of the tenant, and gives it a turn. The tenant is
-- active until then, if it asks for less than its share of the burst.
function shares.refuse(it, tenant, share, cost, whole_after)
  if not share.has_debt and not tenant.waits then
    it.waiting, tenant.waits = it.waiting + 1, true
  end
  local is_alone = share.pace == 0 and it.turns.given == 0
  if not is_alone and not (cost <= tenant.turn and it.at < tenant.turn_at) then
    shares.end_turn(it, tenant)
    shares.give_turn(it, tenant, share, cost, it.scale.fill - whole_after)
  end
  shares.tell_turn(it, tenant, share)
  if cost <= share.portion then
    tenant.seen = math.max(tenant.seen, math.min(it.at + shares.own_wait(share, cost), 9007199254740991))
  end
  it.told = math.max(it.told, tenant.seen, tenant.turn_at)
end

function shares.give_turn(it, tenant, share, cost, there)
  local unit, accrues, wait, claimed = shares.time_of(it, 1), share.pace * cost, nil, 0
  if cost <= share.portion then
    wait = shares.claims_after(share, cost)
    if not share.has_debt and share.pace > 0 then
      claimed = share.balance / share.pace * unit
    end
  else
    local free = math.max(math.min((there - it.turns.kept) / it.scale.fill, 1), 0)
    wait = math.max((1 - free) * accrues + (share.has_debt and share.balance or -share.balance), 1)
  end
  local turns = it.turns
  if wait > 10 * accrues and not (turns.given > 0 and turns_of.slot(turns, wait) <= SLOTS) then
    return
  end
  tenant.turn, tenant.is_large = cost, 4 * cost > it.scale.limit
  it.large = it.large + (tenant.is_large and 1 or 0)
  local need = {cost = shares.time_of(it, cost), due = wait, there = there, claimed = claimed, fill = it.scale.fill}
  local after = turns_of.give(turns, need)
  tenant.turn_at = math.min(it.at + after, 9007199254740991)
end

-- Returns the whole microseconds of a pace, and the parts that are left.
local function paced(pace)
  local whole = math.floor(pace)
  return whole, math.ceil((pace - whole) * 4294967296)
end

-- Returns the time after which a tenant claims so many units.
function shares.claims_after(share, cost)
  local whole, parts = paced(share.pace)
  local time, rest = divided(cost, parts, 4294967296)
  -- One more, since virtual time is rounded.
  local accrued = cost * whole + time + (rest > 0 and 2 or 1)
  return share.has_debt and share.balance + accrued or math.max(accrued - share.balance, 0)
end

-- Returns the time until the turn of a request of this cost, or until the tenant claims that much.
function shares.own_wait(share, cost)
  return cost <= share.turn and share.turn_after or shares.claims_after(share, cost)
end

-- Returns the virtual time of the most that a tenant may claim that does not wait: nothing while it is away.
function shares.longest_claim(it, tenant)
  return tenant.standing == LAPSED and 0 or shares.most(it, tenant) / tenant.weight
end

function shares.use_up(it, field, weight, units, now)
  shares.advance(it, now)
  local tenant = shares.tenant(it, shares.find(it, field, weight))
  shares.visit_known(it, tenant)
  local time, claim = shares.time_of(it, units), shares.longest_claim(it, tenant)
  shares.count_out(it, tenant)
  tenant.tag = math.max(tenant.tag, it.virtual - claim) + time / tenant.weight
  if tenant.standing == SATED then
    tenant.standing, tenant.still = ACCRUING, 0
  end
  shares.count_in(it, tenant)
end

-- Takes units off what a tenant has used, which are its claim again, up to its share of the burst; or forgets its debt, if no number is given.
function shares.give_back(it, field, now, units)
  shares.advance(it, now)
  local place = it.places[field] or it.places['*']
  if not place then
    return
  end
  local tenant = shares.tenant(it, place)
  if units then
    shares.visit_known(it, tenant)
    local time, claim = shares.time_of(it, units), shares.longest_claim(it, tenant)
    shares.count_out(it, tenant)
    tenant.tag = math.max(tenant.tag - time / tenant.weight, math.min(tenant.tag, it.virtual - claim))
  else
    shares.count_out(it, tenant)
    tenant.tag = math.min(tenant.tag, it.virtual)
  end
  shares.count_in(it, tenant)
end

-- Returns the units of the turn that the tenant has now.
function shares.turn_of_now(share)
  return share.turn_after == 0 and share.turn or 0
end

-- Returns the units that the limit needs to have, so that a request of this cost passes.
function shares.needs(share, cost)
  if cost == 0 or cost > share.limit or cost <= shares.turn_of_now(share) then
    return cost
  end
  local is_its_own = cost <= share.claim or share.goes_ahead or cost > share.portion
  local beside_turns = cost + share.kept
  if is_its_own and not share.has_debt then
    return beside_turns
  elseif share.is_contended then
    return math.max(cost + share.others, beside_turns)
  end
  return math.max(math.min(cost + share.others, share.limit), beside_turns)
end

-- Returns how many of the units that are left of the limit the tenant may take.
function shares.of(share, left)
  local beside_turns = math.max(left - share.kept, 0)
  local beside_others = left == share.limit and not share.is_contended and left or left - share.others
  local own = math.min(math.max(math.min(share.claim, left), beside_others), beside_turns)
  return math.max(own, math.min(shares.turn_of_now(share), left), 0)
end

-- Returns the text of a share.
function shares.text(share)
  local mantissa, exponent = math.frexp(share.pace)
  return string.format('%%%d %d %d %d %d %d %d %d %d %d %d %d %d|', share.limit, share.has_debt and 1 or 0, share.goes_ahead and 1 or 0, share.claim,
    share.portion, share.others, share.is_contended and 1 or 0, share.balance,
    mantissa * 9007199254740992, exponent + 1947, share.turn, share.turn_after, share.kept)
end
