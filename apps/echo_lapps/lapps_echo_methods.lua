-- What clients can ask for (requests, answered on channel 0) and tell (notifications, never
-- answered).

local logins = require("lapps_echo_maps")

local USERS = { admin = "admin", guest = "guest" }

-- Broadcasts by the channel on which the client wants to hear them: time_broadcast, and blobs where
-- somebody sends some.
local CHANNELS = nljson.decode('{"5": 1000, "6": 2000}')

-- The code of the answer, and that of the close frame behind it. Codes below -32000 are those of
-- JSON-RPC 2.0.
local REFUSALS = {
  bad_credentials = { 10, 1000 },
  not_logged_in = { -32000, 1000 },
  invalid_request = { -32600, 1003 },
  no_such_method = { -32601, 1003 },
  invalid_params = { -32602, 1003 },
}

local methods = { requests = {}, notifications = {} }

-- Answers with an error and closes the connection.
function methods.refuse(handler, refusal, why)
  local code, close_code = unpack(REFUSALS[refusal])
  local answer = nljson.decode('{"status": 0, "error": {}, "cid": 0}')
  answer.error.code = code
  answer.error.message = why
  return ws:send(handler, answer) and ws:close(handler, close_code, why)
end

-- Channel 0 is for answers to requests, so whoever notifies without a key only sees the end.
local function close(handler)
  return ws:close(handler, 1000)
end

function methods.requests.login(handler, params)
  local who = params[1]
  if type(who) ~= "userdata" then
    return methods.refuse(handler, "invalid_params", "login wants an object with a user")
  end
  local user, password = nljson.find(who, "user"), nljson.find(who, "password")
  if type(user) ~= "string" or type(password) ~= "string" then
    return methods.refuse(handler, "invalid_params", "user and password must be text")
  end
  if USERS[user] ~= password then
    return methods.refuse(handler, "bad_credentials", "no such user, or another password")
  end
  local answer = nljson.decode('{"status": 1, "result": [{}], "cid": 0}')
  answer.result[1].authkey = logins.add(handler)
  return ws:send(handler, answer)
end

function methods.requests.echo(handler, params)
  if not logins.is_known(handler, params) then
    return methods.refuse(handler, "not_logged_in", "the authkey is wrong or missing")
  end
  local answer = nljson.decode('{"status": 1, "result": [], "cid": 0}')
  answer.result = params
  return ws:send(handler, answer)
end

function methods.notifications.subscribe(handler, params, cid)
  if not logins.is_known(handler, params) then
    return close(handler)
  end
  local channel = nljson.find(CHANNELS, cid)
  if channel then
    -- False if nobody has made that channel; then there is nothing to hear.
    bcast:subscribe(channel, handler)
  end
  return true
end

function methods.notifications.logout(handler, params)
  if logins.is_known(handler, params) then
    logins.forget(handler)
  end
  return close(handler)
end

return methods
