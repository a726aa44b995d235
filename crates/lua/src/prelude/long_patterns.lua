-- Who matches a pattern: LuaJIT, which cannot be interrupted, where it cannot take long, and the
-- matcher that can be stopped elsewhere.
local string, counted = ...
local type = type
local find, gsub, sub = string.find, string.gsub, string.sub

-- Steps that LuaJIT may take, some milliseconds.
local STEPS_MAX = 2 ^ 20
-- Patterns whose price is remembered.
local PRICES_MAX = 256

-- For each pattern how many loops are nested in each other at worst, and by how much its options
-- multiply them.
local loops, options, count = {}, {}, 0

-- At least as much as it is: what is not sure counts as a loop.
local function assess(pattern)
  if count == PRICES_MAX then
    loops, options, count = {}, {}, 0
  end
  count = count + 1
  local _, balanced = gsub(pattern, "%%[b%d]", "")
  local bare = gsub(gsub(pattern, "%%.", "x"), "%[%^?%]?[^%]]*%]", "x")
  local _, repetitions = gsub(bare, "[*+-]", "")
  local _, optional = gsub(bare, "%?", "")
  local is_anchored = sub(pattern, 1, 1) == "^"
  loops[pattern] = balanced + repetitions + (is_anchored and 0 or 1)
  options[pattern] = 2 ^ optional
  return loops[pattern]
end

-- Whether LuaJIT may do it; it also tells what is wrong with arguments that are no texts.
local function is_quick(s, pattern)
  if type(s) ~= "string" or type(pattern) ~= "string" then
    return true
  end
  local nested = loops[pattern] or assess(pattern)
  return (#s + 2) ^ nested * options[pattern] <= STEPS_MAX
    -- Once through the subject and no more.
    or nested <= 1 and options[pattern] == 1
end

for _, name in ipairs({"match", "gmatch", "gsub"}) do
  local quick, long = string[name], counted[name]
  string[name] = function(s, pattern, ...)
    if is_quick(s, pattern) then
      return quick(s, pattern, ...)
    end
    return long(s, pattern, ...)
  end
end

function string.find(s, pattern, init, plain)
  if plain or is_quick(s, pattern) then
    return find(s, pattern, init, plain)
  end
  return counted.find(s, pattern, init)
end
