-- moonwire.json. The host returns problems as text, and they are raised here: a service then gets
-- an ordinary string with the line of its own call.
local decode, encode, array, null = ...
local type, error, setmetatable = type, error, setmetatable

local json = { null = null }

-- JSON text to a value. Raises an error with line and column.
function json.decode(text)
  if type(text) ~= "string" then
    error("json.decode: expected a string, not a " .. type(text), 2)
  end
  local value, problem = decode(text)
  if problem then
    error("json.decode: " .. problem, 2)
  end
  return value
end

-- A value to JSON text. Raises an error with the path to what cannot be encoded.
function json.encode(value)
  local text, problem = encode(value)
  if problem then
    error("json.encode: " .. problem, 2)
  end
  return text
end

-- Marks a table as an array, so that it is `[]` when it is empty.
function json.array(t)
  return setmetatable(t or {}, array)
end

return json
