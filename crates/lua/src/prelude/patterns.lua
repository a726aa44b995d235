-- find, match, gmatch and gsub over a matcher that counts its steps. They are as those of LuaJIT,
-- which cannot be interrupted.
local string, search = ...
local type, error, select, tostring = type, error, select, tostring
local byte, sub, find_plain = string.byte, string.sub, string.find
local concat, floor = table.concat, math.floor

-- Bytes compared by a plain search: each place of the subject may be compared with all of the text.
local PLAIN_BYTES_MAX = 2 ^ 32

local function bad(name, position, wanted, value)
  local found = value == nil and "no value" or type(value)
  local place = "bad argument #" .. position .. " to '" .. name .. "'"
  error(place .. " (" .. wanted .. " expected, got " .. found .. ")", 4)
end

local function text(name, position, value)
  if type(value) == "string" then
    return value
  elseif type(value) == "number" then
    return tostring(value)
  end
  bad(name, position, "string", value)
end

-- The first byte to look at: `init` as it is given, from the end if it is negative.
local function start(name, s, init)
  if init == nil then
    return 1
  elseif type(init) ~= "number" then
    bad(name, 3, "number", init)
  end
  if init < 0 then
    init = init + #s + 1
  end
  -- NaN is none of these.
  if init >= 1 and init <= #s + 1 then
    return floor(init)
  end
  return init > #s and #s + 1 or 1
end

local function found(first, last, ...)
  if not first then
    if last then
      error(last, 3)
    end
    return nil
  end
  return first, last, ...
end

local function captured(s, first, last, ...)
  if not first then
    if last then
      error(last, 3)
    end
    return nil
  elseif select("#", ...) == 0 then
    return sub(s, first, last)
  end
  return ...
end

function string.find(s, pattern, init, plain)
  s, pattern = text("find", 1, s), text("find", 2, pattern)
  init = start("find", s, init)
  if plain then
    if #s * #pattern > PLAIN_BYTES_MAX then
      error("the search takes too long: both texts are long", 2)
    end
    return find_plain(s, pattern, init, true)
  end
  return found(search(s, pattern, init, true))
end

function string.match(s, pattern, init)
  s, pattern = text("match", 1, s), text("match", 2, pattern)
  return captured(s, search(s, pattern, start("match", s, init), true))
end

function string.gmatch(s, pattern)
  s, pattern = text("gmatch", 1, s), text("gmatch", 2, pattern)
  local position = 1
  local function advance(first, last, ...)
    if not first then
      position = #s + 2
    else
      position = last >= first and last + 1 or first + 1
    end
    return captured(s, first, last, ...)
  end
  return function()
    if position > #s + 1 then
      return nil
    end
    return advance(search(s, pattern, position, false))
  end
end

-- The text that `%0` to `%9` and `%%` of a replacement stand for.
local function expand(replacement, s, first, last, ...)
  local at = find_plain(replacement, "%", 1, true)
  if not at then
    return replacement
  end
  local parts, count, position = {}, 0, 1
  while at do
    local following = byte(replacement, at + 1)
    local piece
    if following == 48 or (following == 49 and select("#", ...) == 0) then
      piece = sub(s, first, last)
    elseif following and following >= 49 and following <= 57 then
      if following - 48 > select("#", ...) then
        error("invalid capture index", 5)
      end
      piece = (select(following - 48, ...))
    else
      piece = sub(replacement, at + 1, at + 1)
    end
    parts[count + 1], parts[count + 2] = sub(replacement, position, at - 1), piece
    count, position = count + 2, at + 2
    at = find_plain(replacement, "%", position, true)
  end
  parts[count + 1] = sub(replacement, position)
  return concat(parts)
end

-- What comes in place of a match.
local function value_of(replacement, kind, s, first, last, ...)
  local value
  if kind == "function" then
    value = replacement(captured(s, first, last, ...))
  elseif kind == "table" then
    value = replacement[(captured(s, first, last, ...))]
  else
    return expand(replacement, s, first, last, ...)
  end
  if not value then
    return sub(s, first, last)
  elseif type(value) ~= "string" and type(value) ~= "number" then
    error("invalid replacement value (a " .. type(value) .. ")", 4)
  end
  return value
end

local function replaced(replacement, kind, s, first, last, ...)
  if not first then
    return nil, last
  end
  return first, last, value_of(replacement, kind, s, first, last, ...)
end

function string.gsub(s, pattern, replacement, limit)
  s, pattern = text("gsub", 1, s), text("gsub", 2, pattern)
  local kind = type(replacement)
  if kind == "number" then
    replacement = tostring(replacement)
  elseif kind ~= "string" and kind ~= "table" and kind ~= "function" then
    error("bad argument #3 to 'gsub' (string/function/table expected, got " .. kind .. ")", 2)
  end
  if limit ~= nil and type(limit) ~= "number" then
    error("bad argument #4 to 'gsub' (number expected, got " .. type(limit) .. ")", 2)
  end
  limit = limit or #s + 1
  local is_anchored = byte(pattern) == 94
  local parts, used, count, copied, position = {}, 0, 0, 1, 1
  while count < limit and position <= #s + 1 do
    local first, last, value =
      replaced(replacement, kind, s, search(s, pattern, position, true))
    if not first then
      if last then
        error(last, 2)
      end
      break
    end
    parts[used + 1], parts[used + 2] = sub(s, copied, first - 1), value
    count, used, copied = count + 1, used + 2, last + 1
    if is_anchored then
      break
    end
    position = last >= first and last + 1 or first + 1
  end
  parts[used + 1] = sub(s, copied)
  return concat(parts), count
end
