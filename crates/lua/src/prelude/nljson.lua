-- nljson, the documents of LAppS. The host returns problems as text, and they are raised here: a
-- service then gets an ordinary string with the line of its own call.
local host = ...
local get, set, kind, keys, count = host.get, host.set, host.kind, host.keys, host.count
local type, error, tostring = type, error, tostring
-- A restricted service has no io.
local open = io and io.open

local nljson = {}

local function fail(name, problem, level)
  error("nljson." .. name .. ": " .. problem, level + 1)
end

-- Calls a function of the host whose problems belong to the caller's caller.
local function checked(name, call)
  return function(...)
    local value, problem = call(...)
    if problem then
      fail(name, problem, 2)
    end
    return value
  end
end

-- JSON text to a document.
nljson.decode = checked("decode", host.decode)
-- CBOR to a document.
nljson.from_cbor = checked("from_cbor", host.from_cbor)
-- A document to JSON text, keys in byte order.
nljson.encode = checked("encode", host.encode)
-- The same over several lines; without an indent two spaces.
nljson.encode_pretty = checked("encode_pretty", host.encode_pretty)
-- A document to CBOR.
nljson.to_cbor = checked("to_cbor", host.to_cbor)
-- The value of a key of an object, or nil; a number is looked up as its text.
nljson.find = checked("find", host.find)
-- Takes a key of an object out, or an item of an array, whose index counts from zero here. Returns
-- whether there was one.
nljson.erase = checked("erase", host.erase)

-- Reads a file of JSON.
function nljson.decode_file(path)
  if type(path) ~= "string" then
    fail("decode_file", "path must be a string, not a " .. type(path), 2)
  end
  if not open then
    fail("decode_file", "a restricted service reads no files", 2)
  end
  local file, problem = open(path, "rb")
  if not file then
    fail("decode_file", problem, 2)
  end
  local text, unread = file:read("*a")
  file:close()
  if not text then
    fail("decode_file", path .. ": " .. unread, 2)
  end
  local document, wrong = host.decode(text)
  if wrong then
    fail("decode_file", path .. ": " .. wrong, 2)
  end
  return document
end

local function kind_of(name, document)
  local found = kind(document)
  if not found then
    fail(name, "expected a value of nljson, not a " .. type(document), 3)
  end
  return found
end

-- "object", "array", "string", "number", "boolean" or "null".
function nljson.typename(document)
  return (kind_of("typename", document))
end

-- Whether an array or an object has nothing in it.
function nljson.empty(document)
  local found = kind_of("empty", document)
  return (found == "array" or found == "object") and count(document) == 0
end

-- Calls visit(key, value) for what a container holds now, in order. What the visit takes out is
-- not visited any more.
local function each(document, found, visit)
  if found == "array" then
    local index = 1
    while index <= count(document) do
      visit(index, (get(document, index)))
      index = index + 1
    end
  elseif found == "object" then
    local all = keys(document)
    for number = 1, #all do
      local key = all[number]
      local value, problem, is_missing = get(document, key)
      if not is_missing then
        visit(key, value, problem)
      end
    end
  end
end

-- Calls f(key, value) for each; arrays count from 1.
function nljson.foreach(document, f)
  each(document, kind_of("foreach", document), function(key, value)
    f(key, value)
  end)
end

local function descend(document, f)
  each(document, kind(document), function(key, value)
    if kind(value) then
      descend(value, f)
    end
    f(key, value)
  end)
end

-- Calls f(key, value) for all that is within, what a container holds before the container itself.
function nljson.traverse(document, f)
  kind_of("traverse", document)
  descend(document, f)
end

local function index(document, key)
  local value, problem = get(document, key)
  if problem then
    error("nljson: " .. problem, 2)
  end
  return value
end

local function newindex(document, key, value)
  local problem = set(document, key, value)
  if problem then
    error("nljson: " .. problem, 2)
  end
end

local function text(document)
  local json, problem = host.encode(document)
  if problem then
    error("nljson: " .. problem, 2)
  end
  return json
end

return nljson, index, newindex, text
