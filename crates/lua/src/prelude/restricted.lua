-- Takes from a fresh machine what a restricted service must not have. What is not named here is
-- taken, so that a library that grows gives nothing away.
local loaded, find_module = ...
local type, error, tostring, pairs = type, error, tostring, pairs
local select, load, collectgarbage = select, load, collectgarbage
local insert, sort = table.insert, table.sort

local function set(names)
  local members = {}
  for index = 1, #names do
    members[names[index]] = true
  end
  return members
end

local function keep(from, names)
  local kept = set(names)
  for name in pairs(from) do
    if not kept[name] then
      from[name] = nil
    end
  end
end

keep(_G, {
  "_G", "_VERSION", "assert", "bit", "coroutine", "error", "getmetatable", "ipairs", "math",
  "next", "os", "pairs", "pcall", "print", "rawequal", "rawget", "rawlen", "rawset", "select",
  "setmetatable", "string", "table", "tonumber", "tostring", "type", "unpack", "xpcall",
})
keep(string, {
  "byte", "char", "find", "format", "gmatch", "gsub", "len", "lower", "match", "rep", "reverse",
  "sub", "upper",
})
keep(table, {
  "concat", "foreach", "foreachi", "getn", "insert", "maxn", "move", "pack", "remove", "sort",
  "unpack",
})
keep(math, {
  "abs", "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "deg", "exp", "floor", "fmod",
  "frexp", "huge", "ldexp", "log", "log10", "max", "min", "mod", "modf", "pi", "pow", "rad",
  "random", "randomseed", "sin", "sinh", "sqrt", "tan", "tanh",
})
keep(bit, {
  "arshift", "band", "bnot", "bor", "bswap", "bxor", "lshift", "rol", "ror", "rshift", "tobit",
  "tohex",
})
keep(coroutine, { "create", "isyieldable", "resume", "running", "status", "wrap", "yield" })
keep(os, { "clock", "date", "difftime", "time" })
keep(loaded, { "_G", "bit", "coroutine", "math", "os", "string", "table" })

-- All strings have this one.
getmetatable("").__metatable = "string"

local function is_less(a, b)
  return a < b
end

-- Without a function that compares, LuaJIT would sort where nothing can interrupt it.
function table.sort(t, compare)
  if type(t) ~= "table" then
    error("bad argument #1 to 'sort' (table expected, got " .. type(t) .. ")", 2)
  elseif compare ~= nil and type(compare) ~= "function" then
    error("bad argument #2 to 'sort' (function expected, got " .. type(compare) .. ")", 2)
  end
  -- A function of C that compares would leave no instruction at which to stop.
  sort(t, compare and function(a, b)
    local is_before = compare(a, b)
    return is_before
  end or is_less)
end

-- LuaJIT would count from any place up to the end, where nothing can interrupt it.
function table.insert(t, ...)
  if select("#", ...) == 2 and type(t) == "table" then
    local place = (...)
    if type(place) == "number" and not (place >= 1 and place <= #t + 1) then
      error("bad argument #2 to 'insert' (position out of bounds)", 2)
    end
  end
  return insert(t, ...)
end

-- Text only: bytecode is not checked by LuaJIT, and made by hand it can reach all memory.
function _G.load(chunk, name, mode, environment)
  if mode ~= nil and mode ~= "t" and mode ~= "bt" then
    return nil, "a restricted service loads text only"
  elseif name ~= nil and type(name) ~= "string" then
    error("bad argument #2 to 'load' (string expected, got " .. type(name) .. ")", 2)
  end
  return load(chunk, name, "t", environment)
end

function _G.loadstring(text, name)
  if type(text) ~= "string" then
    error("bad argument #1 to 'loadstring' (string expected, got " .. type(text) .. ")", 2)
  end
  return load(text, name, "t")
end

local COLLECTS = set({ "collect", "count", "step" })

-- The collector cannot be stopped.
function _G.collectgarbage(option)
  option = option == nil and "collect" or option
  if not COLLECTS[option] then
    error("collectgarbage: a restricted service has \"collect\", \"count\" and \"step\"", 2)
  end
  return collectgarbage(option)
end

local LOADING = {}

-- What is loaded already, modules of ours among it, else a file in the service's folder.
function _G.require(name)
  if type(name) ~= "string" then
    error("bad argument #1 to 'require' (string expected, got " .. type(name) .. ")", 2)
  end
  local module = loaded[name]
  if module == LOADING then
    error("loop or previous error loading module '" .. name .. "'", 2)
  elseif module ~= nil then
    return module
  end
  local code, place = find_module(name)
  if not code then
    error("module '" .. name .. "' not found: " .. tostring(place), 2)
  end
  local chunk, problem = load(code, "@" .. place, "t")
  if not chunk then
    error("error loading module '" .. name .. "': " .. problem, 0)
  end
  loaded[name] = LOADING
  local value = chunk(name)
  if value ~= nil then
    loaded[name] = value
  elseif loaded[name] == LOADING then
    loaded[name] = true
  end
  return loaded[name]
end
