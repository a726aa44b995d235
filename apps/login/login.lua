-- Lets in who knows a token, and remembers them by a cookie.
local config = require("moonwire.config")
local log = require("moonwire.log")

local login = {}

-- Names by the sessions that were begun, and those in the order in which they were.
local names, sessions = {}, {}
local SESSIONS_MAX = 10000

local function random_hex(bytes)
  local source = assert(io.open("/dev/urandom", "rb"))
  local random = source:read(bytes)
  source:close()
  return (random:gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))
end

local function begin_session(name)
  local session = random_hex(16)
  names[session] = name
  sessions[#sessions + 1] = session
  if #sessions > SESSIONS_MAX then
    names[table.remove(sessions, 1)] = nil
  end
  return session
end

-- Runs before the connection is accepted: what it returns is the answer to the request.
function login.onHandshake(request)
  if names[request.cookies.session] then
    return true
  end
  local token = (request.query or ""):match("^token=([%w-]+)$")
  local name = token and config.tokens[token]
  if not name then
    return {
      status = 401,
      headers = { ["WWW-Authenticate"] = 'Token realm="login"' },
      body = "connect with ?token=, or with the cookie that was set then\n",
    }
  end
  log.info(name .. " has logged in from " .. request.remote_address)
  local cookie = "session=" .. begin_session(name) .. "; HttpOnly; SameSite=Strict; Path=/login"
  return { headers = { ["Set-Cookie"] = cookie } }
end

function login.onStart() end

function login.onMessage(handler, opcode, message)
  return ws:send(handler, opcode, message)
end

function login.onDisconnect(handler) end

function login.onShutdown() end

return login
