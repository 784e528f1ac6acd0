--- Multiverso's helpers between tensors and C arrays.

local numbers = require 'unisono.numbers'

local util = {}

--- Data as an array of the named C type, and what must be held while it is used.
function util.tensor2cdata(data, type_name)
    local array, _, held = numbers.read(data, numbers.kind(type_name or 'float'))
    return array, held
end

--- Values of an array as a tensor of these sizes; without torch, as what tables return.
function util.cdata2tensor(cdata, sizes)
    sizes = type(sizes) == 'number' and { sizes } or sizes
    local result, place, count = numbers.room(sizes[1], sizes[2])
    for i = 0, count - 1 do place[i] = tonumber(cdata[i]) end
    return result
end

return util
