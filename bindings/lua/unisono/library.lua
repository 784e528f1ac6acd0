--- Finds the library: where UNISONO_LIBRARY says, beside these files, where `make lib` leaves it, or where the system looks.

local ffi = require 'ffi'

--- The folder of this file, with a slash at its end.
local function here()
    return debug.getinfo(1, 'S').source:match('^@(.*/)') or './'
end

local function exists(path)
    local file = io.open(path, 'rb')
    if file then file:close() end
    return file ~= nil
end

local function find()
    local wish = os.getenv 'UNISONO_LIBRARY'
    if wish and wish ~= '' then return wish end
    local places = { here(), here() .. '../', here() .. '../../../target/release/' }
    for _, place in ipairs(places) do
        local path = place .. 'libunisono.so'
        if exists(path) then return path end
    end
    for pattern in package.cpath:gmatch('[^;]+') do
        local path = pattern:gsub('%?', 'libunisono')
        if exists(path) then return path end
    end
    return 'unisono'
end

local path = find()
local found, library = pcall(ffi.load, path)
if not found then
    error('unisono: the library ' .. path .. ' cannot be loaded (' .. tostring(library) .. '); build it with `make lib`, '
        .. 'or say where it is with UNISONO_LIBRARY', 0)
end
return library
