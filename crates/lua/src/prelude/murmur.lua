-- murmur. Wrong arguments are raised here, with the line of the service's own call.
local hex, number = ...
local type, error, select = type, error, select

local function checked(name, hash)
  return function(...)
    local value = ...
    if select("#", ...) ~= 1 or (type(value) ~= "string" and type(value) ~= "number") then
      error("murmur." .. name .. "(value): value must be one string or number", 2)
    end
    return (hash(value))
  end
end

return {
  -- The hash as 16 hexadecimal digits.
  hashstr = checked("hashstr", hex),
  -- The hash as a number, which keeps 53 of its 64 bits.
  hashnum = checked("hashnum", number),
}
