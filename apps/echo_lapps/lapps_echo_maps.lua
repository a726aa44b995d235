-- Who has logged in: the key of each connection.

local KEY_MAX = 2 ^ 32

-- From tostring(handler) to the key.
local keys = nljson.decode("{}")

local logins = {}

-- The key that the client must show from now on.
function logins.add(handler)
  local key = math.random(KEY_MAX)
  keys[tostring(handler)] = key
  return key
end

-- Whether the first of the parameters has the key of this connection.
function logins.is_known(handler, params)
  local shown = params[1]
  if type(shown) ~= "userdata" then
    return false
  end
  local key = nljson.find(shown, "authkey")
  -- A number is looked up as its text.
  return key ~= nil and key == nljson.find(keys, handler)
end

function logins.forget(handler)
  nljson.erase(keys, tostring(handler))
end

math.randomseed(os.time())

return logins
