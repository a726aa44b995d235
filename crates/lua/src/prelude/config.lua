-- The metatable of the service's settings: a field that the configuration does not have cannot be
-- added by accident (a misspelt name would otherwise silently make a second one).
local error, tostring = error, tostring

return {
  __newindex = function(_, name)
    error("moonwire.config is read-only, it has no field " .. tostring(name), 2)
  end,
  __metatable = "moonwire.config",
}
