--- The C library, loaded, and what becomes of its errors.

local ffi = require 'ffi'

ffi.cdef(require 'unisono.declarations')

local border = { library = require 'unisono.library' }

--- Raises the library's error, if there was one, at the line that called the binding.
function border.check(status)
    if status ~= 0 then
        border.raise(ffi.string(border.library.unisono_last_error()))
    end
end

--- Where the folders of the binding lie, as the names of its files begin.
local root = debug.getinfo(1, 'S').source:match '^(.*)unisono/[^/]*$' or '@'

local function is_own(source)
    if source:sub(1, #root) ~= root then return false end
    local folder = source:sub(#root + 1):match '^(%a+)/'
    return folder == 'unisono' or folder == 'multiverso'
end

--- Raises an error at the first line outside the binding.
function border.raise(text)
    local level = 2
    local info = debug.getinfo(level, 'S')
    while info do
        local is_code = info.what == 'Lua' or info.what == 'main'
        if is_code and not is_own(info.source) then error(text, level) end
        level = level + 1
        info = debug.getinfo(level, 'S')
    end
    error(text, 0)
end

--- A handle that the library frees when nobody holds it any more.
function border.handle(number, free)
    return ffi.gc(ffi.new('uint64_t[1]', number), function(handle) free(handle[0]) end)
end

return border
