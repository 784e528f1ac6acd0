--- Multiverso's conversions between tensors and C arrays.

local numbers = require 'unisono.numbers'

local util = {}

--- Returns data as an array of the given C type, and a reference that keeps it alive.
function util.tensor2cdata(data, type_name)
    local array, _, held = numbers.read(data, numbers.kind(type_name or 'float'))
    return array, held
end

--- Returns the values of an array as a tensor of these sizes or, without torch, as the type that tables return.
function util.cdata2tensor(cdata, sizes)
    sizes = type(sizes) == 'number' and { sizes } or sizes
    local result, place, count = numbers.room(sizes[1], sizes[2])
    for i = 0, count - 1 do place[i] = tonumber(cdata[i]) end
    return result
end

return util
