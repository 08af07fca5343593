-- The rule of `shares.rs`, function by function, for the tenants of one shared limit. They are a hash, of which a request reads
-- its own tenant and a few others:
-- - `.`: the latest moment; by how much the server's clock is behind it, having stepped back; how many tenants there are; the next
--   to visit; how many wait; the weights that accrue, and those that do not; virtual time; the claims of both; the visits that are
--   due; the last tag; the last moment at which a tenant was told to come. Numbers with a fraction have all their digits.
-- - `=` and a name: the place of this tenant. `*` is the place of all that are not told apart.
-- - `#` and a place: the tenant there: weight, standing, whether it waits (1) and goes ahead (2), when it has last asked, tag, since, still, and its field.
local shares = {}
local ACCRUING, SATED, LAPSED = 1, 2, 0
-- The virtual time that is counted to.
local LATEST = 1073741824

function shares.failed(key)
  error('no tenants are under the key ' .. key .. '; reset it')
end

-- Returns the tenants under this key. A scale is the units of the whole limit, the time in which they are granted anew, how long a
-- tenant counts that does not ask, and how many are told apart.
function shares.load(key, scale, own)
  local texts = redis.call('HMGET', key, '.', own, '*')
  local it = {
    key = key, scale = scale, at = 0, behind = 0, count = 0, hand = 1, waiting = 0, accruing = 0, sated = 0, virtual = 0,
    growing = 0, still = 0, due = 0, furthest = 0, told = 0, tenants = {}, changed = {}, places = {}, gone = {},
  }
  it.places[own], it.places['*'] = texts[2] and texts[2] + 0 or false, texts[3] and texts[3] + 0 or false
  if texts[1] then
    local numbers = {}
    for number in string.gmatch(texts[1], '%S+') do
      numbers[#numbers + 1] = number + 0
    end
    if #numbers ~= 13 then
      shares.failed(key)
    end
    it.at, it.behind, it.count, it.hand, it.waiting, it.accruing, it.sated = unpack(numbers, 1, 7)
    it.virtual, it.growing, it.still, it.due, it.furthest, it.told = unpack(numbers, 8, 13)
    -- No more tenants than this are ever told apart, and all others are one.
    if not (it.count <= 1025 and it.due <= it.count) then
      shares.failed(key)
    end
  elseif texts[2] or texts[3] then
    shares.failed(key)
  end
  return it
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
    local pattern = '^(%d+) (%d) (%d) (%d+) (%S+) (%S+) (%S+) (.+)$'
    local weight, standing, waits, seen, tag, since, still, field = string.match(text or '', pattern)
    if not weight then
      shares.failed(it.key)
    end
    it.tenants[of[index]] = {
      weight = weight + 0, standing = standing + 0, waits = waits % 2 == 1, goes_ahead = waits + 0 > 1, seen = seen + 0, tag = tag + 0,
      since = since + 0, still = still + 0, field = field,
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
    'HSET', it.key, '.', string.format('%d %d %d %d %d %d %d %.17g %.17g %.17g %.17g %.17g %d', it.at, it.behind, it.count, it.hand,
      it.waiting, it.accruing, it.sated, it.virtual, it.growing, it.still, it.due, it.furthest, it.told),
  }
  for place in pairs(it.changed) do
    if place <= it.count then
      local tenant = it.tenants[place]
      words[#words + 1] = '#' .. place
      words[#words + 1] = string.format('%d %d %d %d %.17g %.17g %.17g %s', tenant.weight, tenant.standing,
        (tenant.waits and 1 or 0) + (tenant.goes_ahead and 2 or 0), tenant.seen, tenant.tag, tenant.since, tenant.still, tenant.field)
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

function shares.visit_known(it, tenant)
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
  if tenant.standing ~= LAPSED or shares.debt(it, tenant) > 0 then
    return
  end
  -- The last one takes its place.
  it.places[tenant.field], it.gone[tenant.field] = false, true
  if place < it.count then
    local last = shares.tenant(it, it.count)
    it.tenants[place], it.places[last.field] = last, place
  end
  it.tenants[it.count], it.gone['#' .. it.count] = nil, true
  it.count = it.count - 1
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
    goes_ahead = false,
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
function shares.share_of(it, tenant, goes_ahead, virtual, growing)
  local debt, own, claim, weight, accruing, waits = 0, 0, 0, 1, 0, 0
  if tenant then
    weight = tenant.weight
    debt = math.max(tenant.tag - virtual, 0)
    own = shares.part(tenant, virtual) + tenant.still
    claim = (virtual - tenant.tag) * weight
    accruing = tenant.standing == ACCRUING and weight or 0
    waits = tenant.waits and 1 or 0
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
  return shares.share_of(it, tenant, is_new or tenant.goes_ahead, it.virtual, it.growing), tenant
end

-- Returns what a request of this tenant might take.
function shares.look(it, field, now)
  local place = it.places[field] or it.places['*']
  local tenant = place and shares.tenant(it, place)
  local virtual, growing = shares.after(it, math.max(now + it.behind - it.at, 0))
  local goes_ahead = not tenant or tenant.standing == LAPSED or tenant.goes_ahead
  return shares.share_of(it, tenant, goes_ahead, virtual, growing)
end

function shares.charge(it, tenant, cost)
  shares.stop_waiting(it, tenant)
  local time, most = shares.time_of(it, cost), shares.most(it, tenant)
  local rest = cost <= shares.portion(it, tenant.weight) and most - time or most
  shares.count_out(it, tenant)
  tenant.goes_ahead = false
  if shares.debt(it, tenant) == 0 then
    tenant.tag = math.max(tenant.tag + time / tenant.weight, it.virtual - rest / tenant.weight)
  end
  shares.count_in(it, tenant)
end

-- Notes that the limit had no room for a request of the tenant, which is active until it has accrued the cost.
function shares.refuse(it, tenant, share, cost)
  if cost <= it.scale.limit and not share.has_debt and not tenant.waits then
    it.waiting, tenant.waits = it.waiting + 1, true
  end
  tenant.goes_ahead = cost > share.portion
  if not tenant.goes_ahead then
    tenant.seen = math.max(tenant.seen, math.min(it.at + shares.claims_after(share, cost), 9007199254740991))
    it.told = math.max(it.told, tenant.seen)
  end
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

-- Returns the units that the limit needs to have, so that a request of this cost passes.
function shares.needs(share, cost)
  local is_its_own = cost <= share.claim or share.goes_ahead or cost > share.portion
  if cost == 0 or cost > share.limit or is_its_own and not share.has_debt then
    return cost
  elseif share.is_contended then
    return cost + share.others
  end
  return math.min(cost + share.others, share.limit)
end

-- Returns how many of the units that are left of the limit the tenant may take.
function shares.of(share, left)
  if left == share.limit and not share.is_contended then
    return left
  end
  return math.max(math.min(share.claim, left), left - share.others, 0)
end

-- Returns the text of a share.
function shares.text(share)
  local mantissa, exponent = math.frexp(share.pace)
  return string.format('%%%d %d %d %d %d %d %d %d %d %d|', share.limit, share.has_debt and 1 or 0, share.goes_ahead and 1 or 0, share.claim,
    share.portion, share.others, share.is_contended and 1 or 0, share.balance,
    mantissa * 9007199254740992, exponent + 1947)
end
