-- pam_auth. Wrong arguments return false and a text, as in LAppS.
local login = ...
local type = type

local USAGE = "Usage: pam_auth:login(service, user, password)"

local function is_text(value)
  return type(value) == "string" and value ~= ""
end

local pam_auth = {}

-- Whether PAM knows the user with this password, and lets it in, by the rules of that service.
-- Without texts for all three, or with a NUL in one, false and a text.
function pam_auth.login(_, service, user, password)
  if not (is_text(service) and is_text(user) and is_text(password)) then
    return false, USAGE
  end
  local is_known = login(service, user, password)
  if is_known == nil then
    return false, USAGE
  end
  return is_known
end

return pam_auth
