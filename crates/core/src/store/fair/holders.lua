-- The rule of `holders.rs`, function by function, for the tenants that hold slots of one shared key. The slots are the sorted set of
-- the shared key, in which the name of each ends in the tenant. The tenants are a hash, of which a request reads its own and a few
-- others:
-- - `.`: the latest moment; by how much the server's clock is behind it, having stepped back; how many tenants there are; the next to
--   visit; how many wait; the slots that all hold; the weights of the hungry tenants, and of the full ones; the slots that the full
--   ones hold, the sated ones, and those that are away; the slots that the sated ones want; until when the last one rests; virtual
--   time; the visits that are due; the last tag; and the claim: its slots, or 0 if there is none, when it began, when a slot was last
--   given back, for how long slots were idle for it, and the field of its tenant. Numbers with a fraction have all their digits.
-- - `=` and a name: the place of this tenant. `*` is the place of all that are not told apart.
-- - `#` and a place: the tenant there: weight, standing, slots that it holds, slots that it wants, whether it waits, when it has last
--   asked, when it was last refused, until when its use is counted, until when it rests, when its span began, the most slots that it
--   has held in this span and in the one before, its tag, and its field.
local holders = {}
local HUNGRY, FULL, SATED, AWAY = 1, 2, 3, 0
-- The virtual time that is counted to.
local LATEST = 1073741824
local ROUNDED = 1e-6
-- For how many times of `active_for` a claim waits for a slot that is given back.
local PATIENCE = 5
-- So many slots that have ended are given back one after the other. If there are more, those that are left are counted anew.
local MOST_ENDED = 500
local MOST = 4294967295
local LARGEST = 9007199254740991

function holders.failed(key)
  error('no tenants are under the key ' .. key .. '; reset it')
end

-- Returns the numbers in these texts, none of which is as large as this.
function holders.numbers(key, bound, ...)
  local numbers = {...}
  for index, text in ipairs(numbers) do
    local number = tonumber(text)
    if not number or not (number > -bound and number < bound) then
      holders.failed(key)
    end
    numbers[index] = number
  end
  return unpack(numbers)
end

-- Returns the place in this text, if there is one.
function holders.place_in(it, text)
  local place = text and tonumber(text)
  if text and not (place and place >= 1 and place <= it.count and place % 1 == 0) then
    holders.failed(it.key)
  end
  return place or false
end

-- Finds out the place of a tenant.
function holders.look_up(it, field)
  if it.places[field] == nil then
    it.places[field] = holders.place_in(it, redis.call('HMGET', it.key, field)[1])
  end
end

-- Returns the tenants under this key, of the slots in this set. A scale is the slots of the whole limit, how long a tenant counts that
-- does not ask, and how many are told apart.
function holders.load(key, set, scale, own)
  local texts = redis.call('HMGET', key, '.', own, '*')
  local it = {
    key = key, set = set, scale = scale, at = 0, behind = 0, count = 0, hand = 1, waiting = 0, held = 0, hungry_weights = 0,
    full_weights = 0, full = 0, sated = 0, away = 0, wanted = 0, rests = 0, virtual = 0, due = 0, furthest = 0, tenants = {},
    changed = {}, places = {}, gone = {},
  }
  if texts[1] then
    local whole, fractions, claim = string.match(texts[1], '^(' .. string.rep('%d+ ', 13) .. ')(%S+ %S+ %S+) (.+)$')
    local numbers = {}
    for number in string.gmatch(whole or '', '%d+') do
      numbers[#numbers + 1] = number
    end
    local virtual, due, furthest = string.match(fractions or '', '^(%S+) (%S+) (%S+)$')
    local slots, began, since, idle, field = string.match(claim or '', '^(%d+) (%d+) (%d+) (%S+) (.*)$')
    if not field then
      holders.failed(key)
    end
    it.at, it.behind, it.count, it.hand, it.waiting, it.held, it.hungry_weights, it.full_weights, it.full, it.sated, it.away,
      it.wanted, it.rests = holders.numbers(key, LARGEST, unpack(numbers))
    it.virtual, it.due, it.furthest = holders.numbers(key, LARGEST, virtual, due, furthest)
    -- No more tenants than this are ever told apart, and all others are one.
    if it.count > 1025 or it.due > it.count or it.hand < 1 then
      holders.failed(key)
    end
    if slots ~= '0' then
      it.claim = {field = field}
      it.claim.slots, it.claim.began, it.claim.since = holders.numbers(key, LARGEST, slots, began, since)
      it.claim.idle = holders.numbers(key, 1e300, idle)
    end
  elseif texts[2] or texts[3] then
    holders.failed(key)
  end
  it.places[own], it.places['*'] = holders.place_in(it, texts[2]), holders.place_in(it, texts[3])
  if it.claim then
    holders.look_up(it, it.claim.field)
  end
  return it
end

-- Reads the tenants at these places, those that were not read before.
function holders.read(it, places)
  local fields, of = {}, {}
  for _, place in ipairs(places) do
    if not it.tenants[place] then
      fields[#fields + 1], of[#of + 1] = '#' .. place, place
    end
  end
  if #fields == 0 then
    return
  end
  local pattern = '^(%d+) ([0-3]) (%d+) (%d+) ([01]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.+)$'
  for index, text in ipairs(redis.call('HMGET', it.key, unpack(fields))) do
    local words = {string.match(text or '', pattern)}
    local tenant = {field = words[14], waits = words[5] == '1'}
    if not tenant.field then
      holders.failed(it.key)
    end
    tenant.weight, tenant.standing, tenant.held, tenant.wants = holders.numbers(it.key, LARGEST, unpack(words, 1, 4))
    tenant.seen, tenant.refused, tenant.settled, tenant.rests, tenant.span, tenant.most, tenant.most_before, tenant.tag =
      holders.numbers(it.key, LARGEST, unpack(words, 6, 13))
    tenant.weight = math.max(tenant.weight, 1)
    it.tenants[of[index]] = tenant
  end
end

-- Returns the tenant at this place, which may change from now on.
function holders.tenant(it, place)
  if not it.tenants[place] then
    holders.read(it, {place})
  end
  it.changed[place] = true
  return it.tenants[place]
end

-- Writes what has changed. It lasts until it would make no difference if all tenants were forgotten. The slots last for so many
-- microseconds.
function holders.save(it, now, lasts, shortest)
  local claim = it.claim or {slots = 0, began = 0, since = 0, idle = 0, field = ''}
  local words = {
    'HSET', it.key, '.', string.format('%d %d %d %d %d %d %d %d %d %d %d %d %d %.17g %.17g %.17g %d %d %d %.17g %s', it.at, it.behind,
      it.count, it.hand, it.waiting, it.held, it.hungry_weights, it.full_weights, it.full, it.sated, it.away, it.wanted, it.rests,
      it.virtual, it.due, it.furthest, claim.slots, claim.began, claim.since, claim.idle, claim.field),
  }
  for place in pairs(it.changed) do
    if place <= it.count then
      local tenant = it.tenants[place]
      words[#words + 1] = '#' .. place
      words[#words + 1] = string.format('%d %d %d %d %d %d %d %d %d %d %d %d %.17g %s', tenant.weight, tenant.standing, tenant.held,
        tenant.wants, tenant.waits and 1 or 0, tenant.seen, tenant.refused, tenant.settled, tenant.rests, tenant.span, tenant.most,
        tenant.most_before, tenant.tag, tenant.field)
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
  holders.remove_ended(it, now)
  local owed = math.max(it.furthest - it.virtual, 0) * math.max(it.hungry_weights + it.full_weights, 1)
  local idle = math.max(it.scale.active_for + owed, it.rests - it.at)
  local ttl = math.min(math.ceil((math.max(lasts, 0) + idle) / 1000) + 1, 9007199254740)
  redis.call('PEXPIRE', it.key, string.format('%d', math.max(ttl, shortest)))
end

-- Returns the field of the tenant that holds a slot, if one does.
function holders.field_of(member)
  return string.match(member, '^[%d.]+ (.+)$')
end

-- Removes the slots from the set that have ended.
function holders.remove_ended(it, now)
  if it.has_ended then
    redis.call('ZREMRANGEBYSCORE', it.set, '-inf', string.format('%d', now))
    it.has_ended = false
  end
end

-- Gives the slots back that have ended, each at its end. The set has so many others.
function holders.catch_up(it, now, taken)
  local ended = redis.call('ZRANGEBYSCORE', it.set, '-inf', string.format('%d', now), 'WITHSCORES', 'LIMIT', 0, MOST_ENDED + 1)
  it.has_ended = #ended > 0
  local at, are_many = 1, #ended > 2 * MOST_ENDED
  while at < #ended and not are_many do
    local field, ends, slots = holders.field_of(ended[at]), ended[at + 1], 0
    repeat
      slots, at = slots + 1, at + 2
    until ended[at + 1] ~= ends or holders.field_of(ended[at]) ~= field
    if field then
      holders.look_up(it, field)
      holders.give_back(it, field, slots, math.max(ends + 0, it.at - it.behind))
    end
  end
  -- The hash, or the set, may have been lost.
  if are_many or it.held > taken or taken > 0 and it.at == 0 then
    holders.count_anew(it, now)
  end
end

-- Counts the slots that each tenant holds.
function holders.count_anew(it, now)
  local held, places = {}, {}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', it.set, string.format('(%d', now), '(+inf')) do
    local field = holders.field_of(member)
    if field then
      held[field] = (held[field] or 0) + 1
    end
  end
  holders.advance(it, now)
  for place = 1, it.count do
    places[place] = place
  end
  holders.read(it, places)
  for place = 1, it.count do
    holders.hold(it, holders.tenant(it, place), -it.tenants[place].held)
  end
  it.held = 0
  for field, slots in pairs(held) do
    holders.look_up(it, field)
    holders.hold(it, holders.tenant(it, holders.find(it, field, 1)), slots)
  end
end

-- Returns how many slots the level gives to a tenant of this weight that is in none of the sums.
function holders.level(it, weight)
  local left = math.max(it.scale.limit - (it.wanted + it.full + it.away), 0)
  return left * weight / (it.hungry_weights + weight)
end

-- Returns the slots that tenants share which want more than they have, and the weights of these.
function holders.shared(it)
  return math.max(it.scale.limit - (it.sated + it.away), 0), it.hungry_weights + it.full_weights
end

function holders.pace(it)
  local left, weights = holders.shared(it)
  if weights > 0 then
    return left / math.max(it.scale.limit, 1) / weights
  end
  return 1
end

-- Adds a tenant to the sums, or takes it out by a sign of -1.
function holders.count(it, tenant, sign)
  if tenant.standing == HUNGRY then
    it.hungry_weights = it.hungry_weights + sign * tenant.weight
  elseif tenant.standing == FULL then
    it.full_weights, it.full = it.full_weights + sign * tenant.weight, it.full + sign * tenant.held
  elseif tenant.standing == SATED then
    it.sated, it.wanted = it.sated + sign * tenant.held, it.wanted + sign * tenant.wants
  else
    it.away = it.away + sign * tenant.held
  end
end

-- Counts the use of a tenant up to this moment. From here to `after_change` it is in none of the sums.
function holders.before_change(it, tenant)
  holders.count(it, tenant, -1)
  if tenant.waits then
    it.waiting = it.waiting - 1
  end
  local held_for = math.max(it.at - tenant.settled, 0) * tenant.held
  tenant.settled = it.at
  tenant.tag = tenant.tag + held_for / math.max(it.scale.limit, 1) / tenant.weight
  if it.waiting == 0 then
    tenant.tag = math.min(tenant.tag, it.virtual)
  end
end

-- Finds out how many slots a tenant wants, and where it stands.
function holders.after_change(it, tenant)
  local active_for = it.scale.active_for
  local span = math.max(it.at - tenant.span, 0)
  if span > active_for then
    tenant.most, tenant.most_before = tenant.held, span - active_for <= active_for and tenant.most or 0
    tenant.span = it.at
  end
  tenant.most = math.max(tenant.most, tenant.held)
  tenant.wants = math.max(tenant.most, tenant.most_before)
  tenant.waits = tenant.waits and it.at - tenant.refused <= active_for
  local share = holders.level(it, tenant.weight)
  if it.at - tenant.seen > active_for then
    tenant.standing = AWAY
  elseif not (tenant.waits and tenant.rests <= it.at) and tenant.wants <= share + ROUNDED then
    tenant.standing = SATED
  elseif tenant.held > share + ROUNDED then
    tenant.standing = FULL
  else
    tenant.standing = HUNGRY
  end
  if tenant.waits then
    it.waiting = it.waiting + 1
  end
  it.furthest = math.max(it.furthest, tenant.tag)
  holders.count(it, tenant, 1)
end

-- Lets a tenant hold more slots, or fewer.
function holders.hold(it, tenant, slots)
  it.held = math.max(it.held + slots, 0)
  holders.before_change(it, tenant)
  tenant.held = tenant.held + slots
  holders.after_change(it, tenant)
end

function holders.visit(it, place)
  local tenant = holders.tenant(it, place)
  holders.before_change(it, tenant)
  holders.after_change(it, tenant)
  local is_late = tenant.tag > it.virtual or tenant.rests > it.at
  if tenant.standing ~= AWAY or tenant.held > 0 or is_late then
    return
  end
  -- The last one takes its place.
  it.places[tenant.field], it.gone[tenant.field] = false, true
  if place < it.count then
    local last = holders.tenant(it, it.count)
    it.tenants[place], it.places[last.field] = last, place
  end
  it.tenants[it.count], it.gone['#' .. it.count] = nil, true
  it.count = it.count - 1
end

function holders.begin_anew(it)
  local places = {}
  for place = 1, it.count do
    places[place] = place
  end
  holders.read(it, places)
  for place = 1, it.count do
    local tenant = holders.tenant(it, place)
    tenant.tag = tenant.tag - it.virtual
  end
  it.furthest = math.max(it.furthest - it.virtual, 0)
  it.virtual = 0
end

function holders.advance(it, now)
  local active_for, claim = it.scale.active_for, it.claim
  -- A clock that has stepped back is told from now on by how much it is behind.
  it.behind = it.behind + math.max(it.at - (now + it.behind), 0)
  local passed = now + it.behind - it.at
  it.at = now + it.behind
  if claim then
    claim.idle = claim.idle + passed * math.min(math.max(it.scale.limit - it.held, 0), claim.slots)
  end
  it.virtual = it.virtual + passed * holders.pace(it)
  if it.virtual > LATEST then
    holders.begin_anew(it)
  end
  it.due = math.min(it.due + 2 + it.count * passed / active_for, it.count)
  if it.due >= it.count then
    -- From the end, as for buckets.
    it.hand = 1
  end
  local places, place = {}, it.hand
  for _ = 1, math.floor(it.due) do
    place = place > 1 and math.min(place - 1, it.count) or it.count
    places[#places + 1] = place
  end
  holders.read(it, places)
  while it.due >= 1 and it.count > 0 do
    it.due = it.due - 1
    it.hand = it.hand > 1 and math.min(it.hand - 1, it.count) or it.count
    holders.visit(it, it.hand)
  end
  if claim then
    place = it.places[claim.field]
    if not place or it.at - holders.tenant(it, place).seen > active_for or it.at - claim.since > PATIENCE * active_for then
      holders.end_claim(it)
    end
  end
end

function holders.end_claim(it)
  local claim, left, weights = it.claim, holders.shared(it)
  it.claim = nil
  local place = it.places[claim.field]
  if place then
    local tenant = holders.tenant(it, place)
    local passed = math.max(it.at - claim.began, 0)
    -- A lower limit may have left nothing.
    local all_was_idle_for = left > 0 and math.min(passed, claim.idle / left) or passed
    local due = math.floor(all_was_idle_for * weights / tenant.weight)
    tenant.rests = math.min(it.at + math.max(due - passed, 0), LARGEST - 1)
    it.rests = math.max(it.rests, tenant.rests)
  end
end

function holders.find(it, field, weight)
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
    field = field, weight = weight, standing = AWAY, held = 0, wants = 0, tag = it.virtual, settled = it.at, seen = it.at,
    refused = it.at, waits = false, rests = 0, most = 0, most_before = 0, span = it.at,
  }
  it.places[field], it.gone['#' .. it.count] = it.count, nil
  return it.count
end

function holders.rouse(it, tenant, weight)
  local active_for = it.scale.active_for
  holders.before_change(it, tenant)
  local was_away = it.at - tenant.seen > active_for
  tenant.seen = it.at
  weight = tenant.field == '*' and 1 or weight
  if weight ~= tenant.weight then
    local rest = (tenant.tag - it.virtual) * tenant.weight
    tenant.tag = it.virtual + rest / weight
    tenant.weight = weight
  end
  local most = was_away and 0 or active_for / math.max(it.scale.limit, 1)
  tenant.tag = math.max(tenant.tag, it.virtual - most / weight)
  holders.after_change(it, tenant)
end

-- Returns a number of slots, rounded down.
function holders.rounded(number)
  return math.min(math.max(math.floor(number), 0), MOST)
end

function holders.share_of(it, tenant)
  local weight, held = 1, 0
  if tenant then
    holders.count(it, tenant, -1)
    weight, held = tenant.weight, tenant.held
  end
  local below = holders.level(it, weight) - held
  local whole = holders.rounded(below + ROUNDED)
  local is_late = tenant and tenant.tag > it.virtual + ROUNDED
  local claim, waits = it.claim, tenant and tenant.waits and 1 or 0
  local share = {
    whole = whole,
    in_turn = is_late and whole or holders.rounded(math.ceil(below - ROUNDED)),
    is_next = not is_late and below > ROUNDED,
    others = it.hungry_weights == 0 and math.min(math.max(it.wanted - it.sated, 0), MOST) or MOST,
    claimed = claim and claim.field ~= (tenant and tenant.field or '*') and math.min(claim.slots, MOST) or 0,
    is_contended = it.waiting > waits,
    limit = it.scale.limit,
  }
  if tenant then
    holders.count(it, tenant, 1)
  end
  return share
end

-- Returns what a request of this tenant may take, which is active from now on, and its tenant.
function holders.ask(it, field, weight, now)
  holders.advance(it, now)
  local tenant = holders.tenant(it, holders.find(it, field, weight))
  holders.rouse(it, tenant, weight)
  return holders.share_of(it, tenant), tenant
end

-- Returns what a request of this tenant might take.
function holders.look(it, field, now)
  if now + it.behind - it.at > it.scale.active_for then
    local limit = it.scale.limit
    return {whole = limit, in_turn = limit, is_next = true, others = 0, claimed = 0, is_contended = false, limit = limit}
  end
  local place = it.places[field] or it.places['*']
  return holders.share_of(it, place and holders.tenant(it, place))
end

function holders.take(it, tenant, slots)
  local claim = it.claim
  if claim and claim.field == tenant.field then
    if slots >= claim.slots then
      it.claim = nil
    else
      holders.end_claim(it)
    end
  end
  holders.hold(it, tenant, slots)
end

function holders.refuse(it, tenant, share, slots)
  if slots > it.scale.limit then
    holders.pass_by(it, tenant)
    return
  end
  local claim = it.claim
  local is_its_turn = slots > 1 and tenant.rests <= it.at and (share.is_next or slots <= share.whole)
  if not claim then
    it.claim = is_its_turn and {field = tenant.field, slots = slots, began = it.at, since = it.at, idle = 0} or nil
  elseif claim.field == tenant.field then
    if is_its_turn then
      claim.slots = slots
    else
      holders.end_claim(it)
    end
  end
  holders.before_change(it, tenant)
  tenant.refused, tenant.waits = it.at, true
  holders.after_change(it, tenant)
end

function holders.pass_by(it, tenant)
  if it.claim and it.claim.field == tenant.field then
    holders.end_claim(it)
  end
end

function holders.give_back(it, field, slots, now)
  holders.advance(it, now)
  local left = slots
  for _, name in ipairs({field, '*'}) do
    local place = it.places[name]
    if place and left > 0 then
      local tenant = holders.tenant(it, place)
      local given = math.min(left, tenant.held)
      left = left - given
      holders.hold(it, tenant, -given)
    end
  end
  if it.claim and left < slots then
    it.claim.since = it.at
  end
end

function holders.beside_others(share, free)
  return math.max(free - share.others, 0)
end

function holders.is_all_free(share, free)
  return free == share.limit and not share.is_contended
end

-- Returns whether a request of this cost passes if so many slots are free.
function holders.passes(share, free, cost)
  local is_free, left = holders.is_all_free(share, free), math.max(free - share.claimed, 0)
  return cost <= left and (cost <= share.whole or share.is_next or cost <= holders.beside_others(share, left) or is_free)
end

-- Returns the text of a share, of a request that has taken so many slots.
function holders.text(share, taken)
  return string.format('%%%d %d %d %d %d %d %d %d|', share.whole, share.in_turn, share.is_next and 1 or 0, share.others, share.claimed,
    share.is_contended and 1 or 0, share.limit, taken)
end
